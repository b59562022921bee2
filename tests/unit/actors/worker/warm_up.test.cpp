#include "actors/worker/warm_up.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/golden/support/require.hpp"
#include "tests/unit/actors/worker/runner_rank.hpp"

namespace troupe {
namespace {

using testing::ElementsAreArray;

/// The greedy successors of a prompt.
Result<std::vector<std::int32_t>> answer(const RunnerRank& rank) {
  const std::vector<std::int32_t> prompt{5, 17, 301, 44, 9};
  StepPlan plan;
  NewSequence sequence;
  sequence.tokens = prompt;
  sequence.prompt_tokens = 5;
  sequence.sampling.temperature = 0.0F;
  plan.started.push_back(sequence);
  plan.steps.push_back({.id = 0, .tokens = 5, .new_blocks = {0}, .sample = true});
  std::vector<std::int32_t> ids;
  for (std::int32_t position = 5; position < 10; ++position) {
    TROUPE_TRY(const StepResult result, rank.take(plan));
    ids.push_back(result.results.at(0).tokens.at(0));
    plan = {};
    plan.steps.push_back(
        {.id = 0, .first_position = position, .tokens = 1, .new_blocks = {}, .sample = true});
  }
  return ids;
}

TEST(WarmUp, leaves_a_runner_that_answers_as_a_new_one) {
  REQUIRE_OK(const RunnerRank cold, RunnerRank::make_on_cpu());
  REQUIRE_OK(const RunnerRank warm, RunnerRank::make_on_cpu());
  const Result<void> warmed = warm_up(*warm.runner, *warm.model, RunnerRank::blocks);
  ASSERT_TRUE(warmed.ok()) << warmed.error().message;
  EXPECT_EQ(warm.runner->begun(), 0U);
  // A prompt of 40, and two tokens each of 16, 8, 4, 2 and 1 sequences: no pass may have 24.
  EXPECT_EQ(warm.runner->rows(), 40U + 2 * (16 + 8 + 4 + 2 + 1));
  REQUIRE_OK(const auto expected, answer(cold));
  REQUIRE_OK(const auto answered, answer(warm));
  EXPECT_THAT(answered, ElementsAreArray(expected));
}

TEST(WarmUp, is_content_with_a_cache_of_one_block) {
  REQUIRE_OK(const RunnerRank rank, RunnerRank::make_on_cpu());
  const Result<void> warmed = warm_up(*rank.runner, *rank.model, 1);
  ASSERT_TRUE(warmed.ok()) << warmed.error().message;
  EXPECT_EQ(rank.runner->rows(), 16U + 2);
}

}  // namespace
}  // namespace troupe
