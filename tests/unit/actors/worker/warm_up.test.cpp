#include "actors/worker/warm_up.hpp"

#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/ops/cpu/cpu_ops.hpp"
#include "tests/golden/support/golden_model.hpp"
#include "tests/golden/support/require.hpp"

namespace troupe {
namespace {

using testing::ElementsAreArray;

constexpr std::int64_t blocks = 24;

/// A model on one CPU rank and what runs steps over it.
struct Rank {
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Model> model;
  std::unique_ptr<ModelRunner> runner;

  static Result<Rank> make() {
    Rank rank;
    TROUPE_TRY(rank.ops, make_cpu_ops({}));
    const auto folder = golden::data_folder() / "qwen3moe-a";
    TROUPE_TRY(const ModelConfig config, ModelConfig::load(folder));
    TROUPE_TRY(const Checkpoint checkpoint, Checkpoint::open(folder));
    const ModelLimits limits{.max_batch_tokens = 40, .max_head_rows = 20, .max_positions = 64};
    TROUPE_TRY(rank.model, load_model(config, checkpoint, *rank.ops, {}, limits));
    TROUPE_CHECK(rank.model->allocate_kv_cache(blocks));
    TROUPE_TRY(ModelRunner runner, ModelRunner::create(*rank.model, *rank.ops, {}, blocks));
    rank.runner = std::make_unique<ModelRunner>(std::move(runner));
    return rank;
  }
  Result<StepResult> take(const StepPlan& plan) const {
    TROUPE_CHECK(runner->begin(plan));
    return runner->finish();
  }
};

/// The greedy successors of a prompt.
Result<std::vector<std::int32_t>> answer(const Rank& rank) {
  const std::vector<std::int32_t> prompt{5, 17, 301, 44, 9};
  StepPlan plan;
  NewSequence sequence{.id = 0, .tokens = prompt, .prompt_tokens = 5};
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
  REQUIRE_OK(const Rank cold, Rank::make());
  REQUIRE_OK(const Rank warm, Rank::make());
  const Result<void> warmed = warm_up(*warm.runner, *warm.model, blocks);
  ASSERT_TRUE(warmed.ok()) << warmed.error().message;
  EXPECT_EQ(warm.runner->begun(), 0U);
  // A prompt of 40, and two tokens each of 16, 8, 4, 2 and 1 sequences: no pass may have 24.
  EXPECT_EQ(warm.runner->rows(), 40U + 2 * (16 + 8 + 4 + 2 + 1));
  REQUIRE_OK(const auto expected, answer(cold));
  REQUIRE_OK(const auto answered, answer(warm));
  EXPECT_THAT(answered, ElementsAreArray(expected));
}

TEST(WarmUp, is_content_with_a_cache_of_one_block) {
  REQUIRE_OK(const Rank rank, Rank::make());
  const Result<void> warmed = warm_up(*rank.runner, *rank.model, 1);
  ASSERT_TRUE(warmed.ok()) << warmed.error().message;
  EXPECT_EQ(rank.runner->rows(), 16U + 2);
}

}  // namespace
}  // namespace troupe
