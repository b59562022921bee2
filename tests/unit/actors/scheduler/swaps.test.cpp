#include <functional>
#include <map>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actors/scheduler/scheduler.hpp"
#include "actors/scheduler/step_domain.hpp"
#include "tests/unit/actors/scheduler/honest_worker.hpp"

namespace troupe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// Room for two requests of about 4 + 40 tokens, but not for more.
SchedulerConfig two_at_first() {
  return {.max_num_seqs = 8,
          .max_num_batched_tokens = 64,
          .max_model_len = 256,
          .block_size = 4,
          .kv_cache_blocks = 24,
          .swap_blocks = 100};
}

/// Plans and applies, one plan at a time, until `done` is true for a plan, which is not applied
/// yet.
std::optional<StepPlan> run_until(Scheduler& scheduler,
                                  const std::function<bool(const StepPlan&)>& done) {
  for (int round = 0; round < 2000; ++round) {
    auto next = scheduler.plan();
    EXPECT_TRUE(scheduler.audit().ok()) << scheduler.audit().error().message;
    if (!next || done(*next)) return next;
    apply(scheduler, answer(*next));
  }
  ADD_FAILURE() << "it does not end";
  return std::nullopt;
}

bool swaps_out(const StepPlan& plan) { return !plan.swapped_out.empty(); }
bool swaps_in(const StepPlan& plan) { return !plan.swapped_in.empty(); }

TEST(Swaps, are_refused_with_a_draft_model_and_below_zero) {
  SchedulerConfig config;
  config.swap_blocks = -1;
  EXPECT_THAT(Scheduler::make(config).error().message, HasSubstr("swap_blocks is -1"));
  config.swap_blocks = 5;
  config.speculation.method = SpeculationConfig::Method::draft_model;
  EXPECT_THAT(Scheduler::make(config).error().message,
              HasSubstr("swap_blocks is 5 with a draft model"));
  config.swap_blocks = 0;
  EXPECT_TRUE(Scheduler::make(config).ok());
}

TEST(Swaps, take_one_out_before_blocks_run_out_and_back_when_there_is_room) {
  auto scheduler = make(two_at_first());
  add(scheduler, spec_of(1, 4, 80));
  add(scheduler, spec_of(2, 4, 80));
  const auto out = run_until(scheduler, swaps_out);
  ASSERT_TRUE(out);
  ASSERT_THAT(out->swapped_out, SizeIs(1));
  EXPECT_EQ(out->swapped_out[0].id, 1U) << "of equal ones the last";
  ASSERT_THAT(out->steps, SizeIs(1));
  EXPECT_EQ(out->steps[0].id, 0U) << "the other goes on";
  EXPECT_EQ(scheduler.running(), 1U);
  EXPECT_EQ(scheduler.waiting(), 1U);
  const auto& host_blocks = out->swapped_out[0].host_blocks;
  for (std::size_t i = 0; i < host_blocks.size(); ++i) {
    EXPECT_EQ(host_blocks[i], static_cast<std::int32_t>(i));
  }
  apply(scheduler, answer(*out));

  const auto in = run_until(scheduler, swaps_in);
  ASSERT_TRUE(in);
  ASSERT_THAT(in->swapped_in, SizeIs(1));
  EXPECT_EQ(in->swapped_in[0].id, 1U);
  EXPECT_EQ(in->swapped_in[0].host_blocks, host_blocks);
  EXPECT_EQ(in->swapped_in[0].blocks.size(), host_blocks.size());
  for (const SequenceStep& step : in->steps) EXPECT_NE(step.id, 1U) << "it is not there yet";
  apply(scheduler, answer(*in));
  const StepPlan next = plan(scheduler);
  ASSERT_FALSE(next.steps.empty());
  EXPECT_EQ(next.steps.back().id, 1U);
  EXPECT_THAT(next.started, IsEmpty()) << "workers have its tokens";
  apply(scheduler, answer(next));

  EXPECT_FALSE(run_until(scheduler, [](const StepPlan&) { return false; }));
  EXPECT_EQ(scheduler.live(), 0U);
  EXPECT_EQ(scheduler.blocks().free_blocks(), 24);
  EXPECT_GE(scheduler.counters().swaps, 1U);
  EXPECT_EQ(scheduler.counters().preemptions, 0U);
  EXPECT_EQ(scheduler.counters().recomputed_tokens, 0U);
  EXPECT_EQ(scheduler.counters().prompt_tokens, 8U);
}

TEST(Swaps, come_alone_in_a_plan_if_nothing_else_can_be_done) {
  auto scheduler = make(two_at_first());
  add(scheduler, spec_of(1, 4, 64));
  add(scheduler, spec_of(2, 4, 64));
  auto out = run_until(scheduler, swaps_out);
  ASSERT_TRUE(out);
  apply(scheduler, answer(*out));
  ASSERT_TRUE(scheduler.abort(1));
  const StepPlan alone = plan(scheduler);
  EXPECT_THAT(alone.steps, IsEmpty());
  EXPECT_THAT(alone.swapped_in, SizeIs(1));
  EXPECT_THAT(alone.released, ElementsAre(0U));
  apply(scheduler, answer(alone));
  EXPECT_THAT(plan(scheduler).steps, SizeIs(1));
}

TEST(Swaps, take_the_one_with_the_least_to_generate_when_nothing_waits) {
  auto scheduler = make(two_at_first());
  add(scheduler, spec_of(1, 4, 80));
  add(scheduler, spec_of(2, 4, 90));
  const auto out = run_until(scheduler, swaps_out);
  ASSERT_TRUE(out);
  EXPECT_EQ(out->swapped_out[0].id, 0U);
}

TEST(Swaps, take_the_last_while_others_wait_and_bring_it_back_before_these) {
  auto config = two_at_first();
  config.max_num_seqs = 2;
  auto scheduler = make(config);
  for (std::uint64_t request = 1; request <= 3; ++request) {
    auto spec = spec_of(request, 4, request == 2 ? 90 : 80);
    spec.sampling.seed = request;
    add(scheduler, spec);
  }
  auto out = run_until(scheduler, swaps_out);
  ASSERT_TRUE(out);
  EXPECT_EQ(out->swapped_out[0].id, 1U);
  apply(scheduler, answer(*out));
  const auto in = run_until(
      scheduler, [](const StepPlan& next) { return swaps_in(next) || !next.started.empty(); });
  ASSERT_TRUE(in);
  EXPECT_THAT(in->swapped_in, SizeIs(1)) << "the third may come in the same plan, not before";
}

TEST(Swaps, let_who_has_a_turn_more_to_generate_take_anothers_place) {
  auto config = two_at_first();
  config.max_model_len = 512;
  config.kv_cache_blocks = 160;
  config.swap_blocks = 400;
  auto scheduler = make(config);
  for (std::uint64_t request = 0; request < 4; ++request) add(scheduler, spec_of(request, 4, 400));
  std::map<SequenceId, std::int32_t> swaps;
  std::map<SequenceId, std::uint64_t> last;
  run_until(scheduler, [&](const StepPlan& next) {
    for (const SwapOut& swap : next.swapped_out) ++swaps[swap.id];
    for (const SequenceStep& step : next.steps) last[step.id] = next.step;
    EXPECT_LE(next.swapped_out.size(), 1U);
    return false;
  });
  EXPECT_THAT(swaps, SizeIs(4)) << "not all have made room";
  ASSERT_THAT(last, SizeIs(4));
  for (const auto& [id, step] : last) EXPECT_GT(step + 150, last.rbegin()->second) << id;
}

TEST(Swaps, leave_what_has_no_room_in_host_memory_to_be_computed_anew) {
  auto config = two_at_first();
  config.swap_blocks = 3;
  auto scheduler = make(config);
  add(scheduler, spec_of(1, 4, 80));
  add(scheduler, spec_of(2, 4, 80));
  EXPECT_FALSE(run_until(scheduler, swaps_out));
  EXPECT_EQ(scheduler.live(), 0U);
  EXPECT_EQ(scheduler.counters().swaps, 0U);
  EXPECT_GE(scheduler.counters().preemptions, 1U);
}

TEST(Swaps, leave_what_others_hold_too_to_be_found_in_the_prefix_cache) {
  auto config = two_at_first();
  config.prefix_caching = true;
  config.kv_cache_blocks = 34;
  auto scheduler = make(config);
  add(scheduler, spec_of(1, 65, 60));  // 16 blocks in common
  add(scheduler, spec_of(2, 65, 60));
  EXPECT_FALSE(run_until(scheduler, [](const StepPlan& next) {
    return swaps_out(next) && next.swapped_out[0].host_blocks.size() < 32;
  }));
  EXPECT_EQ(scheduler.live(), 0U);
  EXPECT_GE(scheduler.counters().preemptions, 1U);
}

TEST(Swaps, leave_out_what_left_the_window) {
  auto config = two_at_first();
  config.kv_cache_blocks = 48;
  config.windows = {0, 10};
  config.max_num_batched_tokens = 8;
  auto scheduler = make(config);
  add(scheduler, spec_of(1, 4, 150));
  add(scheduler, spec_of(2, 4, 150));
  auto out = run_until(scheduler, swaps_out);
  ASSERT_TRUE(out);
  const SequenceId id = out->swapped_out[0].id;
  const auto host_blocks = out->swapped_out[0].host_blocks;
  apply(scheduler, answer(*out));
  const auto in = run_until(scheduler, swaps_in);
  ASSERT_TRUE(in);
  ASSERT_EQ(in->swapped_in[0].id, id);
  const auto& blocks = in->swapped_in[0].blocks;
  const auto each = static_cast<std::ptrdiff_t>(blocks.size() / 2);
  EXPECT_EQ(std::count(blocks.begin(), blocks.begin() + each, -1), 0);
  const auto left = std::count(blocks.begin() + each, blocks.end(), -1);
  EXPECT_GE(left, each - 4);
  ASSERT_EQ(host_blocks.size(), blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(host_blocks[i] < 0, blocks[i] < 0);
}

TEST(Swaps, forget_who_is_aborted_before_and_after_the_plan_that_tells) {
  auto config = two_at_first();
  config.max_steps_in_flight = 2;
  for (const bool told : {false, true}) {
    auto scheduler = make(config);
    add(scheduler, spec_of(1, 4, 80));
    add(scheduler, spec_of(2, 4, 80));
    std::deque<StepPlan> sent;
    while (scheduler.counters().swaps == 0) {
      while (auto next = scheduler.plan()) sent.push_back(*std::move(next));
      ASSERT_FALSE(sent.empty());
      apply(scheduler, answer(sent.front()));
      sent.pop_front();
    }
    if (told) sent.push_back(plan(scheduler));
    EXPECT_EQ(told, swaps_out(sent.back()));
    ASSERT_TRUE(scheduler.abort(2));
    ASSERT_TRUE(scheduler.audit().ok()) << scheduler.audit().error().message;
    if (told) {
      apply(scheduler, answer(sent.front()));
      sent.pop_front();
    }
    sent.push_back(plan(scheduler));
    EXPECT_THAT(sent.back().released, ElementsAre(1U));
    EXPECT_THAT(sent.back().swapped_out, IsEmpty());
  }
}

TEST(Swaps, are_computed_anew_after_a_restart) {
  auto scheduler = make(two_at_first());
  add(scheduler, spec_of(1, 4, 80));
  add(scheduler, spec_of(2, 4, 80));
  ASSERT_TRUE(run_until(scheduler, swaps_out));
  scheduler.restart(1);
  ASSERT_TRUE(scheduler.audit().ok()) << scheduler.audit().error().message;
  EXPECT_EQ(scheduler.live(), 2U);
  const StepPlan again = plan(scheduler);
  EXPECT_THAT(again.started, SizeIs(1)) << "the other's tokens leave it no room to grow";
  EXPECT_GT(again.started[0].tokens.size(), 4U);
  EXPECT_THAT(again.swapped_out, IsEmpty());
  apply(scheduler, answer(again));
  EXPECT_FALSE(run_until(scheduler, [](const StepPlan&) { return false; }));
  EXPECT_EQ(scheduler.live(), 0U);
}

TEST(Swaps, ride_along_when_a_replica_steps_for_others) {
  auto config = two_at_first();
  config.max_steps_in_flight = 2;
  auto scheduler = make(config);
  add(scheduler, spec_of(1, 4, 80));
  add(scheduler, spec_of(2, 4, 80));
  std::deque<StepPlan> sent;
  while (scheduler.counters().swaps == 0) {
    while (auto next = scheduler.plan()) sent.push_back(*std::move(next));
    apply(scheduler, answer(sent.front()));
    sent.pop_front();
  }
  const StepPlan empty = scheduler.plan_empty();
  EXPECT_THAT(empty.steps, IsEmpty());
  EXPECT_THAT(empty.swapped_out, SizeIs(1));
  EXPECT_TRUE(scheduler.audit().ok()) << scheduler.audit().error().message;
}

}  // namespace
}  // namespace troupe
