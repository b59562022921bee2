#include "actors/worker/startup/warm_up.hpp"

#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/collectives/shm/shm_collectives.hpp"
#include "tests/support/require.hpp"
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

TEST(WarmUp, of_a_stage_takes_passes_of_many_prompts_alone_first) {
  REQUIRE_OK(const Mesh mesh, Mesh::create({.pipeline = 2}));
  REQUIRE_OK(const SharedMemory region, SharedMemory::create(shm_collectives_bytes(2)));
  std::vector<Result<std::uint64_t>> rows(2, fail(ErrorCode::internal, "not warmed up"));
  const auto warm = [&](int rank) -> Result<std::uint64_t> {
    TROUPE_TRY(UniqueFd fd, region.duplicate_fd());
    TROUPE_TRY(SharedMemory mapped, SharedMemory::map(std::move(fd)));
    TROUPE_TRY(auto group, ShmCollectives::attach(std::move(mapped), rank, 2));
    TROUPE_TRY(auto ops, make_cpu_ops({}));
    ParallelContext parallel{.mesh = mesh, .rank = rank};
    parallel.pipeline = group.get();
    TROUPE_TRY(const RunnerRank stage, RunnerRank::make(std::move(ops), 20, parallel, 8));
    TROUPE_CHECK(warm_up(*stage.runner, *stage.model, RunnerRank::blocks));
    return stage.runner->rows();
  };
  {
    std::jthread first([&] { rows[0] = warm(0); });
    rows[1] = warm(1);
  }
  for (const auto& stage : rows) {
    ASSERT_TRUE(stage.ok()) << stage.error().message;
    // 5 prompts of 8 and 2 of them; then together, as without a pipeline.
    EXPECT_EQ(*stage, 5U * 8 + 2 * 8 + 8 + 2 * (16 + 8 + 4 + 2 + 1));
  }
}

}  // namespace
}  // namespace troupe
