#include <gtest/gtest.h>

#include "tests/golden/support/golden_model.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"

namespace troupe::launcher_test {
namespace {

using nlohmann::json;
using Ids = std::vector<int>;

constexpr std::size_t all = 64;
constexpr double min_router_gap = 1e-5;

std::string text_of(const json& choice) {
  return choice.contains("text") ? choice.at("text") : choice.at("message").at("content");
}

/// Compares an answer with the reference's line, as far as rounding allows.
void expect_reference(const Answer& answer, const json& expected) {
  SCOPED_TRACE(expected.at("custom_id").get<std::string>());
  ASSERT_TRUE(answer.ok()) << answer.record;
  const json& usage = answer.body().at("usage");
  EXPECT_EQ(usage.at("prompt_tokens"), expected.at("prompt_tokens"));
  EXPECT_EQ(usage.at("total_tokens"),
            usage.at("prompt_tokens").get<int>() + usage.at("completion_tokens").get<int>());
  const Ids all_ids = expected.at("token_ids").get<Ids>();
  const auto safe = std::min(expected.at("safe_steps").get<std::size_t>(), all_ids.size());
  if (answer.choice().contains("token_ids")) {
    Ids found = answer.choice().at("token_ids").get<Ids>();
    EXPECT_EQ(found.size(), usage.at("completion_tokens").get<std::size_t>());
    found.resize(std::min(found.size(), safe));
    EXPECT_EQ(found, Ids(all_ids.begin(), all_ids.begin() + static_cast<std::ptrdiff_t>(safe)));
  }
  if (safe < all_ids.size()) return;
  EXPECT_EQ(usage.at("completion_tokens"), expected.at("completion_tokens"));
  EXPECT_EQ(answer.choice().at("finish_reason"), expected.at("finish_reason"));
  EXPECT_EQ(text_of(answer.choice()), expected.at("text").get<std::string>());
}

void expect_references(const Answers& answers, const std::filesystem::path& file) {
  const auto references = json_lines(file);
  ASSERT_EQ(references.size(), all);
  EXPECT_EQ(answers.size(), all);
  std::size_t compared = 0;
  for (const json& expected : references) {
    const auto answer = answers.find(expected.at("custom_id"));
    ASSERT_NE(answer, answers.end()) << "no answer to " << expected.at("custom_id");
    const json gap = expected.value("min_router_gap", json());
    if (gap.is_number() && gap.get<double>() < min_router_gap) continue;
    expect_reference(answer->second, expected);
    ++compared;
  }
  EXPECT_EQ(compared, all);
}

std::filesystem::path requests() { return batch_folder() / "batch-64.jsonl"; }
std::filesystem::path references() { return batch_folder() / "expected-batch-64-fable-moe.jsonl"; }

TEST(GoldenBatch, gets_the_reference_answers_on_one_rank_and_the_same_bytes_on_two_and_four) {
  const std::string input = requests_of(requests(), all, {{"return_token_ids", true}});
  const Answers one = answers_to(input);
  expect_references(one, references());
  for (const std::string ranks : {"2", "4"}) {
    const Answers several = answers_to(input, {"parallel.tensor_parallel_size=" + ranks});
    expect_references(several, references());
    expect_same_payloads(one, several, ranks + " ranks");
  }
}

TEST(GoldenBatch, gets_the_reference_answers_as_it_lies_in_the_file_on_two_ranks) {
  expect_references(answers_to(golden::file_bytes(requests()), {"parallel.tensor_parallel_size=2"}),
                    references());
}

TEST(GoldenBatch, has_the_same_answers_byte_for_byte_however_steps_blocks_and_threads_are_cut) {
  const std::string input = requests_of(requests(), 20, {{"return_token_ids", true}});
  const Answers plain = answers_to(input);
  const std::vector<std::vector<std::string>> ways = {
      {"engine.max_num_batched_tokens=7", "engine.max_num_seqs=7"},
      {"engine.max_num_seqs=3"},
      {"engine.block_size=32"},
      {"engine.threads_per_worker=1"},
      {"engine.threads_per_worker=2"},
      {"engine.max_num_seqs=3", "engine.block_size=32", "parallel.tensor_parallel_size=2",
       "engine.threads_per_worker=2"},
  };
  for (const auto& way : ways) {
    expect_same_payloads(plain, answers_to(input, way), testing::PrintToString(way));
  }
}

TEST(GoldenBatch, is_answered_to_the_last_line_in_bf16) {
  const Answers answers = answers_to(golden::file_bytes(requests()),
                                     {"model.dtype=bfloat16", "parallel.tensor_parallel_size=2"});
  EXPECT_EQ(answers.size(), all);
  for (const auto& [id, answer] : answers) EXPECT_TRUE(answer.ok()) << id << answer.record;
}

TEST(GoldenBatch, of_fable_dense_gets_the_reference_answers) {
  const auto model = golden::golden_model("fable-dense");
  if (!model) GTEST_SKIP() << golden::missing_model_message("fable-dense");
  const std::string input = requests_of(requests(), all, {{"return_token_ids", true}});
  for (const std::string ranks : {"1", "2"}) {
    const Answers answers =
        answers_to(input, {"parallel.tensor_parallel_size=" + ranks}, 0, model->checkpoint);
    expect_references(answers,
                      golden::outside_folder() / "golden/expected-batch-64-fable-dense.jsonl");
  }
}

}  // namespace
}  // namespace troupe::launcher_test
