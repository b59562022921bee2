#include <algorithm>
#include <iostream>

#include <gtest/gtest.h>

#include "tests/golden/support/golden_model.hpp"
#include "tests/golden/support/mesh_ranks.hpp"
#include "tests/support/require.hpp"

namespace troupe::golden {
namespace {

constexpr std::int32_t max_rows = 512;

class Greedy : public testing::TestWithParam<std::string> {};

/// Feeds a prompt and appends the first token of the answer.
Result<void> start(Runner& runner, Sequence& sequence) {
  while (sequence.computed < static_cast<std::int32_t>(sequence.tokens.size())) {
    const auto left = static_cast<std::int32_t>(sequence.tokens.size()) - sequence.computed;
    const std::int32_t rows = std::min(left, max_rows);
    const Share share{&sequence, rows, rows == left ? 1 : 0};
    TROUPE_TRY(const Tensor logits, runner.pass({&share, 1}));
    if (rows == left) {
      sequence.tokens.push_back(argmax(logits.span<float>()));
      return {};
    }
  }
  return {};
}

/// Adds one token to all sequences, in one pass.
Result<void> step(Runner& runner, std::vector<Sequence>& sequences) {
  std::vector<Share> shares;
  for (Sequence& sequence : sequences) shares.push_back({&sequence, 1, 1});
  TROUPE_TRY(const Tensor logits, runner.pass(shares));
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const Tensor row = logits.rows(static_cast<std::int64_t>(i), 1);
    sequences[i].tokens.push_back(argmax(row.span<float>()));
  }
  return {};
}

/// Returns the prompts of `answers` with the model's answers, as long as the longest expected one.
Result<std::vector<Sequence>> answer_all(Runner& runner, std::span<const GoldenAnswer> answers) {
  std::vector<Sequence> sequences;
  std::size_t steps = 0;
  for (const GoldenAnswer& answer : answers) {
    sequences.push_back({answer.prompt});
    TROUPE_CHECK(start(runner, sequences.back()));
    steps = std::max(steps, answer.output.size());
  }
  for (std::size_t i = 1; i < steps; ++i) TROUPE_CHECK(step(runner, sequences));
  return sequences;
}

void expect_golden(std::span<const Sequence> sequences, std::span<const GoldenAnswer> answers,
                   std::string_view what) {
  ASSERT_EQ(sequences.size(), answers.size());
  std::size_t compared = 0;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    ASSERT_GE(answers[i].min_router_gap, 1e-5) << answers[i].id << " is not comparable";
    const auto safe = static_cast<std::ptrdiff_t>(answers[i].safe_steps);
    const auto found =
        sequences[i].tokens.begin() + static_cast<std::ptrdiff_t>(answers[i].prompt.size());
    const std::vector<std::int32_t> expected(answers[i].output.begin(),
                                             answers[i].output.begin() + safe);
    EXPECT_EQ(std::vector<std::int32_t>(found, found + safe), expected) << answers[i].id;
    compared += answers[i].safe_steps;
  }
  std::cout << what << ": " << compared << " tokens compared\n";
  EXPECT_GT(compared, answers.size() * 10);
}

TEST_P(Greedy, answers_are_those_of_transformers_up_to_the_first_near_tie) {
  const auto golden = golden_model(GetParam());
  if (!golden) GTEST_SKIP() << missing_model_message(GetParam());
  REQUIRE_OK(const auto answers, read_answers(golden->greedy));
  ASSERT_FALSE(answers.empty());
  REQUIRE_OK(const auto loaded, load(golden->checkpoint, DType::f32));
  REQUIRE_OK(const auto sequences, answer_all(*loaded.runner, answers));
  expect_golden(sequences, answers, GetParam());
}

TEST(GreedyOfRanks, answers_are_those_of_transformers_with_experts_over_two_ranks) {
  if (max_golden_ranks() < 2) GTEST_SKIP() << "there is one device";
  const auto golden = golden_model("qwen3moe-a");
  REQUIRE_OK(const auto answers, read_answers(golden->greedy));
  ASSERT_FALSE(answers.empty());
  for (const int expert_parallel_size : {1, 2}) {
    const std::string what = "experts over " + std::to_string(expert_parallel_size);
    SCOPED_TRACE(what);
    std::vector<Sequence> of_rank_1;
    const auto body = [&](Runner& runner, int rank) -> Result<std::vector<float>> {
      TROUPE_TRY(auto sequences, answer_all(runner, answers));
      if (rank == 1) of_rank_1 = std::move(sequences);
      return std::vector<float>();
    };
    const auto ran =
        run_ranks(golden->checkpoint, DType::f32,
                  {.shape = {.tensor = 2}, .expert_parallel_size = expert_parallel_size}, body);
    ASSERT_TRUE(ran.ok()) << ran.error().message;
    expect_golden(of_rank_1, answers, what);
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Greedy, testing::ValuesIn(golden_model_names()),
                         [](const auto& info) { return name_in_test(info.param); });

}  // namespace
}  // namespace troupe::golden
