#include <algorithm>
#include <iostream>

#include <gtest/gtest.h>

#include "tests/golden/support/golden_model.hpp"
#include "tests/golden/support/require.hpp"

namespace troupe::golden {
namespace {

constexpr std::int32_t most_rows = 512;

class Greedy : public testing::TestWithParam<std::string> {};

/// Feeds a prompt and appends the first token of the answer.
Result<void> start(Runner& runner, Sequence& sequence) {
  while (sequence.computed < static_cast<std::int32_t>(sequence.tokens.size())) {
    const auto left = static_cast<std::int32_t>(sequence.tokens.size()) - sequence.computed;
    const std::int32_t rows = std::min(left, most_rows);
    const Share share{&sequence, rows, rows == left ? 1 : 0};
    TROUPE_TRY(const Tensor logits, runner.pass({&share, 1}));
    if (rows == left) {
      sequence.tokens.push_back(argmax(logits.span<float>()));
      return {};
    }
  }
  return {};
}

/// One more token for all sequences, in one pass.
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

TEST_P(Greedy, answers_are_those_of_transformers_up_to_the_first_near_tie) {
  const auto golden = golden_model(GetParam());
  if (!golden) GTEST_SKIP() << missing_model_message(GetParam());
  REQUIRE_OK(const auto answers, read_answers(golden->greedy));
  ASSERT_FALSE(answers.empty());
  REQUIRE_OK(const auto loaded, load(golden->checkpoint, DType::f32));

  std::vector<Sequence> sequences;
  std::size_t steps = 0;
  for (const GoldenAnswer& answer : answers) {
    ASSERT_GE(answer.min_router_gap, 1e-5) << answer.id << " is not comparable";
    sequences.push_back({answer.prompt});
    const auto started = start(*loaded.runner, sequences.back());
    ASSERT_TRUE(started.ok()) << started.error().message;
    steps = std::max(steps, answer.output.size());
  }
  for (std::size_t i = 1; i < steps; ++i) {
    const auto stepped = step(*loaded.runner, sequences);
    ASSERT_TRUE(stepped.ok()) << stepped.error().message;
  }

  std::size_t compared = 0;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const auto safe = static_cast<std::ptrdiff_t>(answers[i].safe_steps);
    const auto found =
        sequences[i].tokens.begin() + static_cast<std::ptrdiff_t>(answers[i].prompt.size());
    const std::vector<std::int32_t> expected(answers[i].output.begin(),
                                             answers[i].output.begin() + safe);
    EXPECT_EQ(std::vector<std::int32_t>(found, found + safe), expected) << answers[i].id;
    compared += answers[i].safe_steps;
  }
  std::cout << GetParam() << ": " << compared << " tokens compared\n";
  EXPECT_GT(compared, answers.size() * 10);
}

INSTANTIATE_TEST_SUITE_P(Golden, Greedy,
                         testing::Values("fable-moe", "fable-draft", "fable-dense", "qwen3moe-a",
                                         "llama-a"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace troupe::golden
