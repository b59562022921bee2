#include <algorithm>
#include <deque>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/actors/scheduler/honest_worker.hpp"

namespace troupe {
namespace {

using testing::SizeIs;

SchedulerConfig two_stages() { return {.max_steps_in_flight = 2, .micro_batches = 2}; }

TEST(MicroBatches, cut_a_lone_prompt_into_chunks_that_follow_each_other) {
  auto scheduler = make(two_stages());
  add(scheduler, spec_of(1, 31, 1));
  const StepPlan first = plan(scheduler);
  const StepPlan second = plan(scheduler);
  ASSERT_THAT(first.steps, SizeIs(1));
  ASSERT_THAT(second.steps, SizeIs(1));
  EXPECT_EQ(first.steps[0].tokens, 16);
  EXPECT_FALSE(first.steps[0].sample);
  EXPECT_EQ(second.steps[0].first_position, 16);
  EXPECT_EQ(second.steps[0].tokens, 15);
  EXPECT_TRUE(second.steps[0].sample);
}

TEST(MicroBatches, share_out_the_sequences_that_are_admitted_together) {
  auto scheduler = make(two_stages());
  for (std::uint64_t request = 0; request < 8; ++request) {
    add(scheduler, spec_of(request, 10, 5));
  }
  EXPECT_THAT(plan(scheduler).steps, SizeIs(4));
  EXPECT_THAT(plan(scheduler).steps, SizeIs(4));
}

TEST(MicroBatches, fill_the_budget_while_long_prompts_wait) {
  SchedulerConfig config = two_stages();
  config.max_num_batched_tokens = 64;
  auto scheduler = make(config);
  for (std::uint64_t request = 0; request < 8; ++request) {
    add(scheduler, spec_of(request, 200, 5));
  }
  for (int step = 0; step < 2; ++step) {
    std::int32_t tokens = 0;
    for (const SequenceStep& share : plan(scheduler).steps) tokens += share.tokens;
    EXPECT_EQ(tokens, 64);
  }
}

TEST(MicroBatches, even_out_among_sequences_that_decode) {
  // So little fits at first that the first plan takes nearly all sequences.
  auto scheduler = make({.kv_cache_blocks = 8, .max_steps_in_flight = 2, .micro_batches = 2});
  for (std::uint64_t request = 0; request < 30; ++request) {
    add(scheduler, spec_of(request, 3, 12));
  }
  std::deque<StepPlan> in_flight;
  std::size_t largest = 0;
  for (int step = 0; step < 20; ++step) {
    while (const auto planned = scheduler.plan()) in_flight.push_back(*planned);
    ASSERT_FALSE(in_flight.empty());
    if (step >= 3 && step < 9) largest = std::max(largest, in_flight.front().steps.size());
    apply(scheduler, answer(in_flight.front()));
    in_flight.pop_front();
  }
  EXPECT_LE(largest, 4U);
}

}  // namespace
}  // namespace troupe
