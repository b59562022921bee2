#include "actors/scheduler/scheduler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/actors/scheduler/honest_worker.hpp"

namespace troupe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

SchedulerConfig looking_up(std::int32_t tokens) {
  SchedulerConfig config;
  config.speculation = {SpeculationConfig::Method::prompt_lookup, tokens, 3};
  return config;
}

TEST(Scheduler, plans_nothing_without_requests) {
  auto scheduler = make({});
  EXPECT_FALSE(scheduler.plan().has_value());
  EXPECT_EQ(scheduler.live(), 0U);
}

TEST(Scheduler, refuses_bounds_below_one_and_a_budget_that_a_whole_prompt_exceeds) {
  for (auto member : {&SchedulerConfig::max_num_seqs, &SchedulerConfig::max_num_batched_tokens,
                      &SchedulerConfig::max_model_len, &SchedulerConfig::block_size,
                      &SchedulerConfig::kv_cache_blocks, &SchedulerConfig::max_steps_in_flight,
                      &SchedulerConfig::micro_batches}) {
    SchedulerConfig config;
    config.*member = 0;
    EXPECT_FALSE(Scheduler::make(config).ok());
  }
  SchedulerConfig config;
  config.chunked_prefill = false;
  config.max_num_batched_tokens = config.max_model_len - 1;
  const auto made = Scheduler::make(config);
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.error().message, HasSubstr("max_num_batched_tokens (2047)"));
}

TEST(Scheduler, runs_a_request_from_its_prompt_to_its_length) {
  auto scheduler = make({});
  add(scheduler, spec_of(42, 20, 3));

  const StepPlan first = plan(scheduler);
  EXPECT_EQ(first.step, 0U);
  ASSERT_EQ(first.started.size(), 1U);
  EXPECT_EQ(first.started[0].id, 0U);
  EXPECT_EQ(first.started[0].tokens.size(), 20U);
  EXPECT_EQ(first.started[0].prompt_tokens, 20);
  EXPECT_EQ(first.started[0].sampling.max_tokens, 3);
  ASSERT_EQ(first.steps.size(), 1U);
  EXPECT_EQ(first.steps[0].first_position, 0);
  EXPECT_EQ(first.steps[0].tokens, 20);
  EXPECT_TRUE(first.steps[0].sample);
  // 20 + 3 - 1 positions are computed: the last token is never an input.
  EXPECT_THAT(first.steps[0].new_blocks, ElementsAre(0, 1));
  const auto updates = apply(scheduler, answer(first, 7));
  ASSERT_EQ(updates.size(), 1U);
  EXPECT_EQ(updates[0].request, 42U);
  EXPECT_THAT(updates[0].tokens, ElementsAre(7));
  EXPECT_FALSE(updates[0].end.has_value());

  const StepPlan second = plan(scheduler);
  EXPECT_EQ(second.step, 1U);
  EXPECT_THAT(second.started, IsEmpty());
  ASSERT_EQ(second.steps.size(), 1U);
  EXPECT_EQ(second.steps[0].first_position, 20);
  EXPECT_EQ(second.steps[0].tokens, 1);
  EXPECT_THAT(second.steps[0].new_blocks, IsEmpty());
  apply(scheduler, answer(second, 8));
  const auto last = apply(scheduler, answer(plan(scheduler), 9));
  ASSERT_EQ(last.size(), 1U);
  EXPECT_EQ(last[0].end, SequenceEnd::length);
  EXPECT_EQ(scheduler.live(), 0U);
  EXPECT_EQ(scheduler.blocks().free_blocks(), scheduler.blocks().blocks());
  EXPECT_FALSE(scheduler.plan().has_value());
}

TEST(Scheduler, ends_at_a_stop_token_and_gives_nothing_behind_it) {
  auto scheduler = make(looking_up(3));
  auto spec = spec_of(1, 4, 50);
  spec.prompt = {3, 6, 4, 1};
  spec.sampling.stop_token_ids = {5, 6};
  spec.sampling.logprobs = 0;
  add(scheduler, spec);
  auto first = answer(plan(scheduler), 3);
  first.results[0].logprobs = {{-1.0F, {}, {}}};
  apply(scheduler, first);
  const StepPlan guessing = plan(scheduler);
  ASSERT_THAT(guessing.steps[0].drafts, ElementsAre(6, 4, 1));
  auto result = answer(guessing);
  result.results[0].tokens = {6, 4, 1, 7};
  result.results[0].logprobs = {{-1.0F, {}, {}}, {-2.0F, {}, {}}, {-3.0F, {}, {}}, {-4.0F, {}, {}}};
  const auto updates = apply(scheduler, result);
  ASSERT_EQ(updates.size(), 1U);
  EXPECT_THAT(updates[0].tokens, ElementsAre(6));
  EXPECT_EQ(updates[0].logprobs.size(), 1U);
  EXPECT_EQ(updates[0].end, SequenceEnd::stop);
}

TEST(Scheduler, goes_on_behind_the_drafts_that_held) {
  auto scheduler = make(looking_up(3));
  auto spec = spec_of(1, 5, 50);
  spec.prompt = {1, 2, 3, 4, 1};
  add(scheduler, spec);
  apply(scheduler, answer(plan(scheduler), 2));
  const StepPlan guessing = plan(scheduler);
  EXPECT_EQ(guessing.steps[0].first_position, 5);
  EXPECT_EQ(guessing.steps[0].tokens, 4);
  EXPECT_THAT(guessing.steps[0].drafts, ElementsAre(3, 4, 1));
  auto result = answer(guessing);
  result.results[0].tokens = {3, 9};  // the first draft was accepted, then another token sampled
  apply(scheduler, result);
  const StepPlan next = plan(scheduler);
  EXPECT_EQ(next.steps[0].first_position, 7) << "the token that was no draft";
  EXPECT_EQ(next.steps[0].tokens, 1);
  EXPECT_EQ(scheduler.counters().drafts, 3U);
  EXPECT_EQ(scheduler.counters().accepted_drafts, 1U);
}

TEST(Scheduler, guesses_no_more_than_may_be_generated) {
  auto scheduler = make(looking_up(3));
  auto spec = spec_of(1, 5, 3);
  spec.prompt = {1, 2, 3, 4, 1};
  add(scheduler, spec);
  apply(scheduler, answer(plan(scheduler), 2));
  EXPECT_THAT(plan(scheduler).steps[0].drafts, ElementsAre(3)) << "one token is sampled anyway";
}

TEST(Scheduler, cuts_a_long_prompt_to_the_budget_and_samples_after_its_last_chunk) {
  auto scheduler = make({.max_num_batched_tokens = 32});
  add(scheduler, spec_of(1, 10, 8));
  add(scheduler, spec_of(2, 70, 8));
  const StepPlan first = plan(scheduler);
  ASSERT_EQ(first.steps.size(), 2U);
  EXPECT_EQ(first.steps[1].tokens, 22);
  EXPECT_FALSE(first.steps[1].sample);
  EXPECT_EQ(first.steps[1].new_blocks.size(), 2U) << "for what is planned";
  apply(scheduler, answer(first));
  const StepPlan second = plan(scheduler);
  EXPECT_EQ(second.steps[0].tokens, 1);  // the running one first
  EXPECT_EQ(second.steps[1].first_position, 22);
  EXPECT_EQ(second.steps[1].tokens, 31);
  EXPECT_EQ(second.steps[1].new_blocks.size(), 2U);
  apply(scheduler, answer(second));
  const StepPlan third = plan(scheduler);
  EXPECT_EQ(third.steps[1].tokens, 17);
  EXPECT_TRUE(third.steps[1].sample);
}

TEST(Scheduler, cuts_no_prompt_without_chunked_prefill) {
  auto scheduler =
      make({.max_num_batched_tokens = 32, .max_model_len = 32, .chunked_prefill = false});
  add(scheduler, spec_of(1, 20, 4));
  add(scheduler, spec_of(2, 20, 4));
  const StepPlan first = plan(scheduler);
  ASSERT_EQ(first.steps.size(), 1U);
  apply(scheduler, answer(first));
  const StepPlan second = plan(scheduler);
  ASSERT_EQ(second.steps.size(), 2U);
  EXPECT_EQ(second.steps[1].tokens, 20);
}

TEST(Scheduler, admits_in_the_order_of_arrival_even_if_a_later_one_would_fit) {
  auto scheduler = make({.kv_cache_blocks = 4});
  add(scheduler, spec_of(1, 30, 3));  // 2 blocks
  add(scheduler, spec_of(2, 40, 3));  // 3 blocks: does not fit beside the first
  add(scheduler, spec_of(3, 5, 3));   // 1 block: would
  const StepPlan first = plan(scheduler);
  EXPECT_EQ(first.started.size(), 1U);
  EXPECT_EQ(scheduler.waiting(), 2U);
  apply(scheduler, answer(first));
  apply(scheduler, answer(plan(scheduler)));
  apply(scheduler, answer(plan(scheduler)));
  const StepPlan fourth = plan(scheduler);
  EXPECT_THAT(fourth.released, ElementsAre(0U));
  ASSERT_EQ(fourth.started.size(), 2U);
  EXPECT_EQ(fourth.started[0].prompt_tokens, 40);
  EXPECT_EQ(fourth.started[0].id, 0U) << "the released id is the next to be used";
}

TEST(Scheduler, runs_at_most_max_num_seqs) {
  auto scheduler = make({.max_num_seqs = 2});
  for (std::uint64_t request = 0; request < 5; ++request) add(scheduler, spec_of(request, 4, 1));
  const StepPlan first = plan(scheduler);
  EXPECT_EQ(first.steps.size(), 2U);
  apply(scheduler, answer(first));
  const StepPlan second = plan(scheduler);
  EXPECT_EQ(second.released.size(), 2U);
  EXPECT_EQ(second.steps.size(), 2U);
}

TEST(Scheduler, refuses_at_once_what_can_never_run) {
  auto scheduler = make({.max_model_len = 100, .kv_cache_blocks = 5});
  EXPECT_EQ(scheduler.add(spec_of(1, 0, 4)).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(scheduler.add(spec_of(1, 4, -1)).error().code, ErrorCode::invalid_argument);
  auto negative = spec_of(1, 4, 4);
  negative.prompt[2] = -7;
  EXPECT_EQ(scheduler.add(negative).error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(scheduler.add(spec_of(1, 100, 1)).error().message, HasSubstr("100 tokens"));
  EXPECT_THAT(scheduler.add(spec_of(1, 70, 20)).error().message,
              HasSubstr("needs 6 cache blocks, there are 5"));
  EXPECT_EQ(scheduler.live(), 0U);
  add(scheduler, spec_of(1, 70, 11));
  EXPECT_EQ(scheduler.add(spec_of(1, 4, 4)).error().code, ErrorCode::already_exists);
  EXPECT_EQ(scheduler.live(), 1U);
}

TEST(Scheduler, ends_with_length_where_the_context_ends) {
  auto scheduler = make({.max_model_len = 10});
  add(scheduler, spec_of(1, 8, 2147483647));
  EXPECT_FALSE(apply(scheduler, answer(plan(scheduler)))[0].end.has_value());
  EXPECT_EQ(apply(scheduler, answer(plan(scheduler)))[0].end, SequenceEnd::length);
}

TEST(Scheduler, scores_a_prompt_in_chunks_and_ends_without_sampling_when_max_tokens_is_0) {
  auto scheduler = make({.max_num_batched_tokens = 8, .max_model_len = 12});
  auto spec = spec_of(1, 12, 0);
  spec.sampling.prompt_logprobs = 1;
  add(scheduler, spec);
  const auto scores = [](const StepPlan& step, std::int32_t begin, std::size_t count) {
    StepResult result{step.step, step.epoch, {}, 0};
    result.results.push_back({step.steps[0].id, {}, {}, begin, {}, false});
    result.results[0].prompt_logprobs.resize(count);
    return result;
  };
  const StepPlan first = plan(scheduler);
  EXPECT_FALSE(first.steps[0].sample);
  auto updates = apply(scheduler, scores(first, 1, 8));
  ASSERT_EQ(updates.size(), 1U);
  EXPECT_EQ(updates[0].prompt_begin, 1);
  EXPECT_EQ(updates[0].prompt_logprobs.size(), 8U);
  EXPECT_FALSE(updates[0].end.has_value());
  const StepPlan second = plan(scheduler);
  EXPECT_FALSE(second.steps[0].sample);
  updates = apply(scheduler, scores(second, 9, 3));
  ASSERT_EQ(updates.size(), 1U);
  EXPECT_EQ(updates[0].prompt_begin, 9);
  EXPECT_EQ(updates[0].end, SequenceEnd::length);
  EXPECT_THAT(updates[0].tokens, IsEmpty());
  EXPECT_EQ(scheduler.blocks().free_blocks(), scheduler.blocks().blocks());
}

TEST(Scheduler, ends_max_tokens_0_even_if_the_worker_has_nothing_to_say) {
  auto scheduler = make({});
  add(scheduler, spec_of(1, 1, 0));
  const auto updates = apply(scheduler, answer(plan(scheduler)));
  ASSERT_EQ(updates.size(), 1U);
  EXPECT_EQ(updates[0].end, SequenceEnd::length);
}

TEST(Scheduler, fails_one_sequence_and_goes_on_with_the_others) {
  auto scheduler = make({});
  add(scheduler, spec_of(1, 4, 4));
  add(scheduler, spec_of(2, 4, 4));
  auto result = answer(plan(scheduler));
  result.results[0].tokens.clear();
  result.results[0].failed = true;
  const auto updates = apply(scheduler, result);
  ASSERT_EQ(updates.size(), 2U);
  EXPECT_EQ(updates[0].end, SequenceEnd::failed);
  EXPECT_FALSE(updates[1].end.has_value());
  EXPECT_EQ(scheduler.live(), 1U);
}

TEST(Scheduler, aborts_waiting_and_running_requests_without_a_further_update) {
  auto scheduler = make({.max_num_seqs = 1});
  add(scheduler, spec_of(1, 4, 4));
  add(scheduler, spec_of(2, 4, 4));
  const StepPlan first = plan(scheduler);
  EXPECT_TRUE(scheduler.abort(2));
  EXPECT_TRUE(scheduler.abort(1));
  EXPECT_FALSE(scheduler.abort(1));
  EXPECT_EQ(scheduler.live(), 0U);
  EXPECT_LT(scheduler.blocks().free_blocks(), scheduler.blocks().blocks())
      << "blocks of a step in flight must not be given away";
  add(scheduler, spec_of(1, 4, 4));  // the id is free at once
  EXPECT_FALSE(scheduler.plan().has_value());
  EXPECT_THAT(apply(scheduler, answer(first)), IsEmpty());
  const StepPlan next = plan(scheduler);
  EXPECT_THAT(next.released, ElementsAre(0U));
  EXPECT_EQ(next.started[0].id, 0U);
}

TEST(Scheduler, refuses_results_that_are_not_those_of_its_oldest_plan_and_changes_nothing) {
  auto scheduler = make({});
  EXPECT_FALSE(scheduler.apply(StepResult{}).ok());
  add(scheduler, spec_of(1, 4, 4));
  auto scored = spec_of(2, 4, 4);
  scored.sampling.logprobs = 0;
  add(scheduler, scored);
  const StepPlan step = plan(scheduler);
  auto good = answer(step);
  good.results[1].logprobs.resize(1);

  const auto refused = [&](StepResult result) {
    const auto applied = scheduler.apply(std::move(result));
    EXPECT_TRUE(scheduler.audit().ok());
    return !applied.ok() && applied.error().code == ErrorCode::internal;
  };
  auto bad = good;
  bad.step = 9;
  EXPECT_TRUE(refused(bad)) << "another step";
  bad = good;
  bad.epoch = 1;
  EXPECT_TRUE(refused(bad)) << "another epoch";
  bad = good;
  bad.results[0].id = 5;
  EXPECT_TRUE(refused(bad)) << "an unknown sequence";
  bad.results[0].id = 5000000;
  EXPECT_TRUE(refused(bad)) << "an impossible sequence";
  bad = good;
  bad.results.push_back(bad.results[0]);
  EXPECT_TRUE(refused(bad)) << "a sequence twice";
  bad = good;
  bad.results.pop_back();
  EXPECT_TRUE(refused(bad)) << "a sampled sequence without an answer";
  bad = good;
  bad.results[1].logprobs.clear();
  EXPECT_TRUE(refused(bad)) << "logprobs that were asked for are missing";
  EXPECT_EQ(apply(scheduler, good).size(), 2U);
}

TEST(Scheduler, plans_ahead_of_results_and_drops_what_followed_the_end) {
  auto scheduler = make({.max_num_batched_tokens = 16, .max_steps_in_flight = 3});
  auto spec = spec_of(1, 30, 4);
  spec.sampling.stop_token_ids = {7};
  add(scheduler, spec);
  const StepPlan first = plan(scheduler);
  const StepPlan second = plan(scheduler);
  EXPECT_EQ(first.steps[0].tokens, 16);
  EXPECT_FALSE(first.steps[0].sample);
  EXPECT_EQ(second.steps[0].first_position, 16);
  EXPECT_TRUE(second.steps[0].sample);
  const StepPlan third = plan(scheduler);
  EXPECT_EQ(third.steps[0].first_position, 30) << "the token that the second plan samples";
  EXPECT_TRUE(third.steps[0].sample);
  EXPECT_FALSE(scheduler.plan().has_value()) << "three plans are in flight";
  EXPECT_FALSE(scheduler.apply(answer(second)).ok()) << "results come in the order of plans";
  EXPECT_THAT(apply(scheduler, answer(first)), IsEmpty());
  const auto updates = apply(scheduler, answer(second, 7));
  ASSERT_EQ(updates.size(), 1U);
  EXPECT_EQ(updates[0].end, SequenceEnd::stop);
  EXPECT_THAT(apply(scheduler, answer(third)), IsEmpty());
  EXPECT_EQ(scheduler.blocks().free_blocks(), scheduler.blocks().blocks());
}

TEST(Scheduler, plans_ahead_no_further_than_the_last_token) {
  auto scheduler = make({.max_steps_in_flight = 4});
  add(scheduler, spec_of(1, 4, 2));
  const StepPlan first = plan(scheduler);
  const StepPlan second = plan(scheduler);
  EXPECT_FALSE(scheduler.plan().has_value());
  apply(scheduler, answer(first));
  EXPECT_EQ(apply(scheduler, answer(second))[0].end, SequenceEnd::length);
}

TEST(Scheduler, keeps_an_aborted_sequence_until_its_last_plan_in_flight_is_applied) {
  auto scheduler = make({.max_num_batched_tokens = 16, .max_steps_in_flight = 2});
  add(scheduler, spec_of(1, 64, 4));
  const StepPlan first = plan(scheduler);
  const StepPlan second = plan(scheduler);
  ASSERT_TRUE(scheduler.abort(1));
  EXPECT_THAT(apply(scheduler, answer(first)), IsEmpty());
  EXPECT_LT(scheduler.blocks().free_blocks(), scheduler.blocks().blocks());
  EXPECT_THAT(apply(scheduler, answer(second)), IsEmpty());
  EXPECT_EQ(scheduler.blocks().free_blocks(), scheduler.blocks().blocks());
}

TEST(Scheduler, says_how_far_requests_are_whose_steps_are_in_flight) {
  auto scheduler = make({.max_num_seqs = 2, .max_steps_in_flight = 2});
  add(scheduler, spec_of(1, 4, 8));
  auto choices = spec_of(2, 4, 8);
  choices.choices = 2;
  add(scheduler, choices);
  EXPECT_THAT(scheduler.under_way(), IsEmpty());
  const StepPlan prompts = plan(scheduler);
  ASSERT_EQ(scheduler.under_way().size(), 2U);
  EXPECT_EQ(scheduler.under_way()[0], (UnderWay{.request = 1, .reach = 0}));
  EXPECT_EQ(scheduler.under_way()[1], (UnderWay{.request = 2, .reach = std::nullopt}))
      << "it has several sequences";
  plan(scheduler);
  apply(scheduler, answer(prompts));  // one token each, whose keys and values are being computed
  EXPECT_EQ(scheduler.under_way()[0].reach, 1);
  plan(scheduler);
  EXPECT_EQ(scheduler.under_way()[0].reach, 2);
}

TEST(Scheduler, starts_everything_anew_with_its_tokens_after_a_restart) {
  auto scheduler = make({.max_num_seqs = 2});
  for (std::uint64_t request = 1; request <= 3; ++request) {
    auto spec = spec_of(request, 4, 4);
    spec.sampling.prompt_logprobs = 0;
    add(scheduler, spec);
  }
  apply(scheduler, answer(plan(scheduler), 9));
  plan(scheduler);
  const LostWork lost = scheduler.restart(5);
  EXPECT_EQ(lost.kv_tokens, 8U) << "the prompts of two; their next positions were in flight";
  EXPECT_EQ(lost.in_flight_tokens, 2U);
  ASSERT_TRUE(scheduler.audit().ok()) << scheduler.audit().error().message;
  EXPECT_EQ(scheduler.in_flight(), 0U);
  EXPECT_EQ(scheduler.live(), 3U);
  const StepPlan again = plan(scheduler);
  EXPECT_EQ(again.epoch, 5U);
  EXPECT_THAT(again.released, IsEmpty());
  ASSERT_EQ(again.started.size(), 2U);
  EXPECT_THAT(again.started[0].tokens, ElementsAre(100, 101, 102, 103, 9));
  EXPECT_EQ(again.started[0].prompt_tokens, 4);
  EXPECT_EQ(again.started[0].sampling.prompt_logprobs, -1) << "the prompt was scored already";
  EXPECT_EQ(again.steps[0].tokens, 5);
  const auto updates = apply(scheduler, answer(again));
  ASSERT_EQ(updates.size(), 2U);
  EXPECT_EQ(updates[0].request, 1U);
}

}  // namespace
}  // namespace troupe
