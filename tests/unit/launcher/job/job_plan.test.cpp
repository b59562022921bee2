#include "launcher/job/job_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using testing::HasSubstr;

/// The plan of fable-moe with `sections` below the model.
Result<JobPlan> plan_of(const std::string& sections) {
  const std::string yaml = "model: {path: " TROUPE_SOURCE_DIR "/configs/demo/fable-moe}\n";
  TROUPE_TRY(Config config, parse_config(yaml + sections, "c.yaml", {}, Purpose::check));
  return plan_job(std::move(config));
}

TEST(JobPlan, gives_the_engine_every_parallel_size) {
  const auto plan = plan_of(
      "parallel: {tensor_parallel_size: 2, pipeline_parallel_size: 4, data_parallel_size: 3,\n"
      "           expert_parallel_size: 1, sequence_parallel: true, collectives: gloo}\n");
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->engine.tensor_parallel_size, 2);
  EXPECT_EQ(plan->engine.pipeline_parallel_size, 4);
  EXPECT_EQ(plan->engine.data_parallel_size, 3);
  EXPECT_EQ(plan->engine.expert_parallel_size, 1);
  EXPECT_TRUE(plan->engine.sequence_parallel);
  EXPECT_EQ(plan->engine.collectives, "gloo");
  EXPECT_EQ(plan->devices, 24);
  EXPECT_EQ(plan->ranks.size(), 24U);
}

TEST(JobPlan, decides_what_is_left_to_it) {
  const auto plan = plan_of("parallel: {tensor_parallel_size: 2, data_parallel_size: 2}\n");
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->engine.expert_parallel_size, 2);
  EXPECT_EQ(plan->engine.pipeline_parallel_size, 1);
  EXPECT_EQ(plan->engine.collectives, "shm");
  EXPECT_EQ(plan->engine.kv_cache_blocks, 0);
  EXPECT_GT(plan->kv_blocks, 0);
  EXPECT_GE(plan->engine.threads_per_worker, 1);
}

TEST(JobPlan, knows_what_every_rank_will_hold) {
  const auto plan = plan_of(
      "parallel: {tensor_parallel_size: 2, pipeline_parallel_size: 2, data_parallel_size: 2,\n"
      "           expert_parallel_size: 4}\n"
      "engine: {kv_cache_blocks: 100, block_size: 32}\n");
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->kv_blocks, 100);
  for (int rank = 0; rank < 8; ++rank) {
    SCOPED_TRACE(plan->mesh.describe(rank));
    const MeshCoordinates at = plan->mesh.coordinates(rank);
    const RankFootprint& held = plan->ranks[static_cast<std::size_t>(rank)];
    EXPECT_EQ(held.layers, (Slice{at.stage * 2, 2}));
    EXPECT_EQ(held.experts, (Slice{(at.data * 2 + at.tensor) * 4, 4}));
    // 2 layers x keys and values x 32 tokens x 1 head x 64, in f32.
    EXPECT_EQ(held.kv_bytes_per_block, std::size_t{2} * 2 * 32 * 64 * 4);
  }
}

TEST(JobPlan, warns_of_more_threads_than_cores) {
  const auto plan = plan_of("engine: {threads_per_worker: 1024}\n");
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  ASSERT_EQ(plan->warnings.size(), 1U);
  EXPECT_THAT(plan->warnings.front(), HasSubstr("1 workers of 1024 threads on"));
  EXPECT_THAT(describe(*plan), HasSubstr("warning: 1 workers of 1024 threads on"));
}

TEST(JobPlan, refuses_steps_smaller_than_the_running_requests) {
  const auto plan = plan_of("engine: {max_num_seqs: 64, max_num_batched_tokens: 32}\n");
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.error().message, HasSubstr("engine.max_num_batched_tokens is 32"));
}

TEST(JobPlan, refuses_a_context_that_the_model_was_not_made_for) {
  const auto plan = plan_of("engine: {max_model_len: 4096}\n");
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.error().message, HasSubstr("engine.max_model_len is 4096"));
}

}  // namespace
}  // namespace troupe
