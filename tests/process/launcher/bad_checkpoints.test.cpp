#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/golden/support/golden_model.hpp"
#include "tests/golden/support/require.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"

namespace troupe::launcher_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr double quick_seconds = 2;

std::filesystem::path good_folder() { return golden::data_folder() / "qwen3moe-a"; }

/// Both ways to start the launcher refuse `model` at once, with one message, and leave nothing.
void expect_refused(const std::filesystem::path& model, const std::vector<std::string>& words) {
  SCOPED_TRACE(model.filename().string());
  for (const bool check : {true, false}) {
    const LauncherJob job(model);
    job.write_input(completion("r1", {1, 2, 3}, {{"max_tokens", 4}}));
    const Ended ended =
        job.run(check ? std::vector<std::string>{"check"} : std::vector<std::string>());
    EXPECT_EQ(ended.code, 2) << ended.describe();
    EXPECT_LT(ended.seconds, quick_seconds) << ended.describe();
    EXPECT_EQ(ended.out, "");
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(model.string()));
    for (const std::string& word : words) EXPECT_THAT(ended.err, HasSubstr(word));
    EXPECT_FALSE(std::filesystem::exists(job.output())) << "an output was left behind";
    EXPECT_FALSE(std::filesystem::exists(job.output().string() + ".job"));
    EXPECT_THAT(processes_left_in(job.folder(), std::chrono::milliseconds(0)), IsEmpty());
  }
}

TEST(BadCheckpoint, of_each_kind_is_refused_by_a_check_and_a_run_naming_file_and_cause) {
  const std::string config = golden::file_bytes(good_folder() / "config.json");
  const std::string weights = golden::file_bytes(good_folder() / "model.safetensors");
  std::string long_header = weights;
  const std::uint64_t too_long = weights.size() + 1000;
  std::memcpy(long_header.data(), &too_long, sizeof too_long);
  auto renamed = json::parse(config);
  renamed["architectures"] = {"FooBarForCausalLM"};
  renamed["model_type"] = "foobar";
  auto wider = json::parse(config);
  wider["hidden_size"] = 96;
  REQUIRE_OK(const auto checkpoint, Checkpoint::open(good_folder()));
  auto tensors = golden::read_all(checkpoint);
  const std::string lost = "model.layers.0.self_attn.o_proj.weight";
  ASSERT_EQ(tensors.erase(lost), 1U);

  struct Case {
    std::string name, config, weights;
    std::vector<std::string> words;
  };
  const std::vector<Case> cases = {
      {"truncated", config, weights.substr(0, weights.size() * 6 / 10), {"model.safetensors"}},
      {"missing-tensor", config, golden::safetensors_bytes(tensors), {lost}},
      {"unknown-architecture", renamed.dump(), weights, {"config.json", "FooBarForCausalLM"}},
      {"config-not-json", "{\"hidden_size\": 64,\n bad: 1,}", weights, {"config.json:2", "JSON"}},
      {"long-header", config, long_header, {"model.safetensors", "header"}},
      {"no-config", "", weights, {"config.json"}},
      {"another-size", wider.dump(), weights, {"model.safetensors", "96"}},
  };
  const golden::TemporaryFolder models;
  for (const Case& bad : cases) {
    std::filesystem::create_directory(models.path() / bad.name);
    if (!bad.config.empty()) models.write(bad.name + "/config.json", bad.config);
    models.write(bad.name + "/model.safetensors", bad.weights);
    expect_refused(models.path() / bad.name, bad.words);
  }
}

TEST(BadCheckpoint, of_the_golden_folder_is_refused) {
  const auto folder = golden::outside_folder() / "golden" / "bad" / "checkpoints";
  if (!std::filesystem::exists(folder)) {
    GTEST_SKIP() << golden::missing_model_message("bad/checkpoints");
  }
  const json expectations = json::parse(golden::file_bytes(folder / "expect.json"));
  for (const auto& [name, expected] : expectations.items()) {
    if (name != "_good") expect_refused(folder / name, {});
  }
  const Answers answers =
      answers_to(completion("r1", "Once", {{"max_tokens", 4}}), {}, 0, folder / "_good");
  EXPECT_TRUE(answers.at("r1").ok());
}

TEST(GoodCheckpoint, without_a_tokenizer_answers_token_ids_and_refuses_text) {
  const Answers answers =
      answers_to(completion("ids", {1, 2, 3},
                            {{"max_tokens", 4}, {"temperature", 0}, {"return_token_ids", true}}) +
                     completion("text", "Once", {{"max_tokens", 4}}),
                 {}, 1, good_folder());
  ASSERT_TRUE(answers.at("ids").ok()) << answers.at("ids").record;
  EXPECT_EQ(answers.at("ids").choice().at("token_ids").size(), 4U);
  ASSERT_FALSE(answers.at("text").ok());
  EXPECT_THAT(answers.at("text").record.at("error").dump(), HasSubstr("tokenizer.json"));
}

TEST(BadCheckpoint, with_a_broken_tokenizer_is_refused_before_anything_starts) {
  const golden::TemporaryFolder model;
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::filesystem::create_symlink(good_folder() / name, model.path() / name);
  }
  model.write("tokenizer.json", "{\"model\": ");
  expect_refused(model.path(), {"tokenizer.json"});
}

}  // namespace
}  // namespace troupe::launcher_test
