#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/process/launcher/support/topologies.hpp"
#include "tests/support/checkpoint_folder.hpp"

// A model with only a config.json.

namespace troupe::launcher_test {
namespace {

constexpr const char* dummy = "model.load_format=dummy";

std::string token_id_requests() {
  std::string input;
  for (int i = 0; i < 12; ++i) {
    nlohmann::json prompt;
    for (int token = 0; token < 5 + i * 7; ++token) prompt.push_back((token * 131 + i) % 4093);
    input += completion(fmt::format("r{}", i), prompt,
                        {{"max_tokens", 12},
                         {"temperature", i % 2},
                         {"ignore_eos", true},
                         {"logprobs", 2},
                         {"return_token_ids", true}});
  }
  return input;
}

TEST(DummyWeights, answer_token_ids_alike_in_every_arrangement) {
  const golden::TemporaryFolder model;
  model.write("config.json", golden::file_bytes(demo_model() / "config.json"));
  const Answers alone = answers_to(token_id_requests(), {dummy}, 0, model.path());
  ASSERT_EQ(alone.size(), 12U);
  for (const auto& [id, answer] : alone) {
    EXPECT_EQ(answer.choice().at("token_ids").size(), 12U) << id;
  }
  for (const Topology& topology : topologies()) {
    if (topology.name != "tp2" && topology.name != "tp2_pp2_ep2_sp") continue;
    std::vector<std::string> settings{dummy};
    for (const std::string& size : topology.parallel) settings.push_back("parallel." + size);
    expect_same_payloads(alone, answers_to(token_id_requests(), settings, 0, model.path()),
                         topology.name);
  }
}

TEST(DummyWeights, stand_in_for_a_checkpoint_of_bf16_too) {
  const golden::TemporaryFolder model;
  model.write("config.json", golden::file_bytes(demo_model() / "config.json"));
  const std::vector<std::string> one{dummy, "model.dtype=bfloat16"};
  const std::vector<std::string> two{dummy, "model.dtype=bfloat16",
                                     "parallel.tensor_parallel_size=2"};
  expect_same_payloads(answers_to(token_id_requests(), one, 0, model.path()),
                       answers_to(token_id_requests(), two, 0, model.path()), "tp2 in bf16");
}

}  // namespace
}  // namespace troupe::launcher_test
