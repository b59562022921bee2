#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/actors/scheduler/honest_worker.hpp"

namespace troupe {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

SchedulerConfig caching() {
  SchedulerConfig config;
  config.prefix_caching = true;
  config.kv_cache_blocks = 20;
  return config;
}

TEST(PrefixCache, shares_what_an_earlier_request_of_the_same_plan_will_compute) {
  auto scheduler = make(caching());
  add(scheduler, spec_of(1, 40, 4));
  add(scheduler, spec_of(2, 50, 4));  // begins with the first one's prompt
  const StepPlan first = plan(scheduler);
  ASSERT_THAT(first.steps, SizeIs(2));
  EXPECT_EQ(first.started[1].cached_tokens, 32) << "two full blocks; the third is not full";
  EXPECT_EQ(first.steps[1].first_position, 32);
  EXPECT_EQ(first.steps[1].tokens, 18);
  EXPECT_THAT(first.steps[0].new_blocks, ElementsAre(0, 1, 2));
  EXPECT_THAT(first.steps[1].new_blocks, ElementsAre(0, 1, 3, 4));
  EXPECT_EQ(scheduler.counters().prefix_tokens, 32U);
}

TEST(PrefixCache, computes_at_least_the_last_token_of_a_prompt) {
  auto scheduler = make(caching());
  add(scheduler, spec_of(1, 32, 1));
  apply(scheduler, answer(plan(scheduler)));
  add(scheduler, spec_of(2, 32, 1));
  const StepPlan second = plan(scheduler);
  EXPECT_EQ(second.started[0].cached_tokens, 16) << "all of it is known, but logits are wanted";
  EXPECT_EQ(second.steps[0].tokens, 16);
}

TEST(PrefixCache, finds_generated_tokens_as_well) {
  auto scheduler = make(caching());
  add(scheduler, spec_of(1, 30, 4));
  for (int token = 0; token < 4; ++token) apply(scheduler, answer(plan(scheduler), 7));
  auto next = spec_of(2, 30, 1);
  next.prompt.insert(next.prompt.end(), {7, 7, 7, 9});
  add(scheduler, next);
  EXPECT_EQ(plan(scheduler).started[0].cached_tokens, 32);
}

TEST(PrefixCache, tells_beginnings_apart_that_end_alike) {
  auto scheduler = make(caching());
  add(scheduler, spec_of(1, 48, 1));
  apply(scheduler, answer(plan(scheduler)));
  auto other = spec_of(2, 48, 1);
  other.prompt[3] = 5;
  add(scheduler, other);
  EXPECT_EQ(plan(scheduler).started[0].cached_tokens, 0);
}

TEST(PrefixCache, is_not_asked_where_the_prompt_is_scored) {
  auto scheduler = make(caching());
  add(scheduler, spec_of(1, 40, 1));
  apply(scheduler, answer(plan(scheduler)));
  auto scored = spec_of(2, 40, 1);
  scored.sampling.prompt_logprobs = 0;
  add(scheduler, scored);
  EXPECT_EQ(plan(scheduler).started[0].cached_tokens, 0);
}

TEST(PrefixCache, forgets_the_least_recently_used_when_blocks_are_needed) {
  auto config = caching();
  config.kv_cache_blocks = 4;
  auto scheduler = make(config);
  const auto run = [&](std::uint64_t request, std::int32_t first_token) {
    auto spec = spec_of(request, 32, 1);
    spec.prompt[0] = first_token;
    add(scheduler, spec);
    const StepPlan planned = plan(scheduler);
    apply(scheduler, answer(planned));
    return planned.started[0].cached_tokens;
  };
  EXPECT_EQ(run(1, 1), 0);
  EXPECT_EQ(run(2, 2), 0);
  EXPECT_EQ(run(3, 1), 16) << "four blocks hold both";
  EXPECT_EQ(run(4, 3), 0) << "takes the blocks of the second";
  EXPECT_EQ(run(5, 2), 0);
}

TEST(Preemption, takes_the_blocks_of_the_last_running_request_when_blocks_run_out) {
  auto scheduler = make({.kv_cache_blocks = 4});
  add(scheduler, spec_of(1, 30, 20));
  add(scheduler, spec_of(2, 30, 20));
  for (int step = 0; step < 3; ++step) apply(scheduler, answer(plan(scheduler), 7));
  // Each has 33 tokens, of which 32 are computed: the 33rd needs a block, and none is left.
  const StepPlan fourth = plan(scheduler);
  EXPECT_THAT(fourth.released, ElementsAre(1U));
  ASSERT_THAT(fourth.steps, SizeIs(1));
  EXPECT_EQ(fourth.steps[0].id, 0U);
  EXPECT_EQ(scheduler.counters().preemptions, 1U);
  EXPECT_EQ(scheduler.waiting(), 1U);
  apply(scheduler, answer(fourth, 7));
  for (int step = 0; step < 16; ++step) apply(scheduler, answer(plan(scheduler), 7));
  const StepPlan again = plan(scheduler);
  ASSERT_THAT(again.started, SizeIs(1));
  EXPECT_THAT(again.started[0].tokens, SizeIs(33)) << "it keeps the tokens that it has";
  EXPECT_EQ(again.started[0].prompt_tokens, 30);
  EXPECT_EQ(again.steps[0].tokens, 33);
  EXPECT_EQ(scheduler.counters().prompt_tokens, 90U);
  EXPECT_EQ(scheduler.counters().recomputed_tokens, 30U) << "the second one's prompt came twice";
  EXPECT_EQ(scheduler.counters().looked_up_tokens, 0U) << "there is no prefix cache";
}

TEST(Preemption, counts_a_prompt_once_that_is_cut_short_and_found_again_in_the_cache) {
  auto config = caching();
  config.kv_cache_blocks = 5;
  config.max_num_batched_tokens = 32;
  auto scheduler = make(config);
  add(scheduler, spec_of(1, 30, 20));
  auto longer = spec_of(2, 60, 1);
  longer.prompt[0] = 99;
  add(scheduler, longer);
  std::uint64_t steps = 0;
  for (auto next = scheduler.plan(); next; next = scheduler.plan()) {
    apply(scheduler, answer(*next, 7));
    ASSERT_LT(++steps, 100U);
  }
  EXPECT_EQ(scheduler.live(), 0U);
  const SchedulerCounters& counters = scheduler.counters();
  EXPECT_EQ(counters.prompt_tokens - counters.recomputed_tokens + counters.prefix_tokens, 90U)
      << counters.preemptions << " preemptions";
  EXPECT_EQ(counters.looked_up_tokens, 90U);
}

TEST(Preemption, waits_for_plans_in_flight_that_name_the_sequence) {
  auto scheduler = make({.kv_cache_blocks = 4, .max_steps_in_flight = 2});
  add(scheduler, spec_of(1, 31, 20));
  add(scheduler, spec_of(2, 31, 20));
  const StepPlan first = plan(scheduler);
  const StepPlan second = plan(scheduler);
  apply(scheduler, answer(first, 7));
  EXPECT_FALSE(scheduler.plan().has_value()) << "the second's blocks are not free yet";
  EXPECT_EQ(scheduler.running(), 2U);
  const auto updates = apply(scheduler, answer(second, 7));
  EXPECT_THAT(updates, SizeIs(2)) << "what was sampled meanwhile is kept";
  EXPECT_EQ(scheduler.running(), 1U);
  EXPECT_THAT(plan(scheduler).released, ElementsAre(1U));
}

TEST(Windows, give_back_blocks_that_no_position_sees_any_more) {
  SchedulerConfig config;
  config.kv_cache_blocks = 8;
  config.max_num_batched_tokens = 16;
  config.windows = {20};
  auto scheduler = make(config);
  add(scheduler, spec_of(1, 160, 4));
  std::int32_t most = 0;
  while (scheduler.live() > 0) {
    const StepPlan step = plan(scheduler);
    most = std::max(most, scheduler.blocks().blocks() - scheduler.blocks().free_blocks());
    apply(scheduler, answer(step));
  }
  EXPECT_LE(most, 4) << "20 positions before a chunk of 16 lie in at most four blocks";
}

TEST(Windows, need_the_end_of_a_prefix_only) {
  SchedulerConfig config = caching();
  config.windows = {20};
  auto scheduler = make(config);
  add(scheduler, spec_of(1, 160, 1));
  apply(scheduler, answer(plan(scheduler)));
  add(scheduler, spec_of(2, 170, 1));
  const StepPlan second = plan(scheduler);
  EXPECT_EQ(second.started[0].cached_tokens, 160);
  ASSERT_THAT(second.steps[0].new_blocks, SizeIs(11));
  EXPECT_EQ(second.steps[0].new_blocks[7], -1) << "positions below 141 are not seen";
  EXPECT_GE(second.steps[0].new_blocks[8], 0);
}

TEST(Windows, beside_full_layers_leave_room_for_who_goes_on_from_a_prefix) {
  SchedulerConfig config = caching();
  config.windows = {0, 16};
  config.max_num_batched_tokens = 16;
  config.kv_cache_blocks = 43;  // barely what the second request holds at one time
  auto scheduler = make(config);
  add(scheduler, spec_of(1, 320, 1));
  while (scheduler.live() > 0) apply(scheduler, answer(plan(scheduler)));
  add(scheduler, spec_of(2, 640, 1));
  int steps = 0;
  while (scheduler.live() > 0 && steps < 100) {
    apply(scheduler, answer(plan(scheduler)));
    ++steps;
  }
  EXPECT_EQ(steps, 20) << "the first 320 tokens are found";
}

TEST(Policies, admit_by_their_own_order) {
  const auto first_started = [](SchedulingPolicy policy, std::int64_t now_us) {
    SchedulerConfig config;
    config.max_num_seqs = 1;
    config.policy = policy;
    auto scheduler = make(config);
    auto specs = {spec_of(1, 40, 10), spec_of(2, 10, 5), spec_of(3, 20, 10)};
    for (SequenceGroupSpec spec : specs) {
      spec.priority = spec.request == 3 ? -1 : 0;
      if (spec.request != 2) spec.deadline_us = spec.request == 1 ? 900 : 1500;
      add(scheduler, spec);
    }
    return static_cast<int>(scheduler.plan(now_us)->started[0].tokens.size());
  };
  EXPECT_EQ(first_started(SchedulingPolicy::fcfs, 0), 40);
  EXPECT_EQ(first_started(SchedulingPolicy::priority, 0), 20);
  EXPECT_EQ(first_started(SchedulingPolicy::sjf, 0), 10);
  EXPECT_EQ(first_started(SchedulingPolicy::deadline, 0), 40);
  EXPECT_EQ(first_started(SchedulingPolicy::deadline, 1000), 20) << "the first is too late anyway";
}

}  // namespace
}  // namespace troupe
