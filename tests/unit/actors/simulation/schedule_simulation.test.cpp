#include "actors/simulation/schedule_simulation.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actors/simulation/schedule_totals.hpp"

namespace troupe {
namespace {

using testing::HasSubstr;

SchedulerConfig config_of(SchedulingPolicy policy = SchedulingPolicy::fcfs) {
  SchedulerConfig config;
  config.policy = policy;
  return config;
}

SimulatedRequest request_of(std::int32_t prompt, std::int32_t answer, std::int64_t arrival_us = 0) {
  SimulatedRequest request;
  request.arrival_us = arrival_us;
  request.prompt_tokens = prompt;
  request.max_tokens = request.output_tokens = answer;
  return request;
}

ScheduleOutcome simulate(const SchedulerConfig& config, const std::vector<SimulatedRequest>& trace,
                         const StepCost& cost = {}) {
  auto outcome = simulate_schedule(config, cost, trace);
  EXPECT_TRUE(outcome.ok()) << (outcome.ok() ? "" : outcome.error().message);
  return outcome.ok() ? *std::move(outcome) : ScheduleOutcome{};
}

ScheduleTotals totals(const SchedulerConfig& config, const std::vector<SimulatedRequest>& trace,
                      const StepCost& cost = {}) {
  return totals_of(trace, simulate(config, trace, cost));
}

void expect_all_tokens(const std::vector<SimulatedRequest>& trace, const ScheduleOutcome& outcome) {
  ASSERT_EQ(outcome.requests.size(), trace.size());
  for (std::size_t i = 0; i < trace.size(); ++i) {
    EXPECT_EQ(outcome.requests[i].tokens, trace[i].output_tokens) << "of request " << i;
    EXPECT_GE(outcome.requests[i].begin_us, trace[i].arrival_us) << "of request " << i;
    EXPECT_GT(outcome.requests[i].first_token_us, outcome.requests[i].begin_us) << "of " << i;
    EXPECT_GE(outcome.requests[i].end_us, outcome.requests[i].first_token_us) << "of " << i;
  }
}

std::vector<SimulatedRequest> drawn(TraceSpec spec) {
  auto trace = random_trace(spec);
  EXPECT_TRUE(trace.ok()) << (trace.ok() ? "" : trace.error().message);
  return trace.ok() ? *std::move(trace) : std::vector<SimulatedRequest>{};
}

/// One at a time, so the order matters most.
SchedulerConfig one_seat(SchedulingPolicy policy) {
  SchedulerConfig config = config_of(policy);
  config.max_num_seqs = 1;
  return config;
}

TEST(ScheduleSimulation, takes_for_one_request_the_sum_of_its_steps_computed_by_hand) {
  SchedulerConfig config = config_of();
  config.max_num_batched_tokens = 8;
  const StepCost cost{
      .us_per_step = 100, .us_per_token = 10, .us_per_kv_token = 2, .us_per_plan = 7};
  const auto outcome = simulate(config, {request_of(12, 3, 1'000)}, cost);
  // Two chunks that end at 8 and at 12, then the first two tokens of the answer at 13 and at 14.
  const std::int64_t first = 7 + 100 + 8 * 10 + 8 * 2;
  const std::int64_t second = 7 + 100 + 4 * 10 + 12 * 2;
  const std::int64_t third = 7 + 100 + 10 + 13 * 2;
  const std::int64_t fourth = 7 + 100 + 10 + 14 * 2;
  EXPECT_EQ(outcome.steps, 4);
  EXPECT_EQ(outcome.computed_tokens, 14);
  ASSERT_EQ(outcome.requests.size(), 1U);
  const RequestOutcome& request = outcome.requests[0];
  EXPECT_EQ(request.begin_us, 1'000 + 7);
  EXPECT_EQ(request.first_token_us, 1'000 + first + second);
  EXPECT_EQ(request.end_us, 1'000 + first + second + third + fourth);
  EXPECT_EQ(request.alone_us, first + second + third + fourth);
  EXPECT_EQ(request.tokens, 3);
  EXPECT_EQ(outcome.makespan_us, request.end_us);
}

TEST(ScheduleSimulation, hides_the_time_of_a_plan_behind_the_step_before_it) {
  SchedulerConfig config = config_of();
  config.max_steps_in_flight = 2;
  const StepCost cost{
      .us_per_step = 100, .us_per_token = 10, .us_per_kv_token = 0, .us_per_plan = 30};
  const auto outcome = simulate(config, {request_of(4, 5)}, cost);
  EXPECT_EQ(outcome.makespan_us, 30 + (100 + 4 * 10) + 4 * (100 + 10));
}

TEST(ScheduleSimulation, lets_stages_of_a_pipeline_work_at_the_same_time) {
  const std::vector<SimulatedRequest> trace(8, request_of(16, 64));
  SchedulerConfig config = config_of();
  const StepCost cost{
      .us_per_step = 0, .us_per_token = 100, .us_per_kv_token = 0, .us_per_plan = 0};
  const auto one = simulate(config, trace, cost);
  config.micro_batches = 2;
  config.max_steps_in_flight = 3;
  StepCost two_stages = cost;
  two_stages.stages = 2;
  const auto two = simulate(config, trace, two_stages);
  expect_all_tokens(trace, two);
  EXPECT_EQ(one.makespan_us, 8 * (16 + 63) * 100);
  EXPECT_LT(static_cast<double>(two.makespan_us), 0.6 * static_cast<double>(one.makespan_us));
}

TEST(ScheduleSimulation, reads_no_more_than_the_window_of_a_window_group) {
  SchedulerConfig config = config_of();
  config.windows = {4};
  const StepCost cost{.us_per_step = 0, .us_per_token = 0, .us_per_kv_token = 1, .us_per_plan = 0};
  const auto outcome = simulate(config, {request_of(6, 3)}, cost);
  EXPECT_EQ(outcome.makespan_us, 6 + 4 + 4);
}

TEST(ScheduleSimulation, ends_an_answer_at_its_stop_token_before_max_tokens) {
  SimulatedRequest request = request_of(5, 40);
  request.output_tokens = 9;
  for (const std::int32_t in_flight : {1, 3}) {
    SchedulerConfig config = config_of();
    config.max_steps_in_flight = in_flight;
    expect_all_tokens({request}, simulate(config, {request}));
  }
}

TEST(ScheduleSimulation, shortest_first_answers_sooner_on_average_than_first_come_first_served) {
  std::vector<SimulatedRequest> trace = {request_of(1'000, 500)};
  for (int i = 0; i < 10; ++i) trace.push_back(request_of(20, 10));
  const auto fcfs = totals(one_seat(SchedulingPolicy::fcfs), trace);
  const auto sjf = totals(one_seat(SchedulingPolicy::sjf), trace);
  EXPECT_LT(sjf.first_token_us.mean, fcfs.first_token_us.mean / 2);
  EXPECT_LT(sjf.end_to_end_us.mean, fcfs.end_to_end_us.mean / 2);
  EXPECT_LT(sjf.queueing_us.mean, fcfs.queueing_us.mean / 2);
  EXPECT_LT(sjf.worst_slowdown, fcfs.worst_slowdown / 5);
  EXPECT_DOUBLE_EQ(sjf.makespan_s, fcfs.makespan_s);
}

TEST(ScheduleSimulation, by_deadline_more_requests_are_in_time_than_first_come_first_served) {
  std::vector<SimulatedRequest> trace(12, request_of(50, 20));
  const std::int64_t alone_us = simulate(config_of(), {trace[0]}).requests[0].alone_us;
  // Later requests must be done sooner: last come, first served is the only way.
  for (std::size_t i = 0; i < trace.size(); ++i) {
    const auto place = static_cast<std::int64_t>(trace.size() - i);
    trace[i].deadline_us = place * alone_us + alone_us / 2;
  }
  const auto fcfs = totals(one_seat(SchedulingPolicy::fcfs), trace);
  const auto deadline = totals(one_seat(SchedulingPolicy::deadline), trace);
  EXPECT_GE(fcfs.deadline_misses, 5);
  EXPECT_EQ(deadline.deadline_misses, 0);
  EXPECT_GT(deadline.goodput, fcfs.goodput);
  EXPECT_DOUBLE_EQ(deadline.goodput, 1.0);
}

TEST(ScheduleSimulation, by_priority_urgent_requests_wait_less) {
  std::vector<SimulatedRequest> trace(10, request_of(50, 20));
  for (std::size_t i = 0; i < trace.size(); ++i) trace[i].priority = i < 8 ? 1 : 0;
  const auto outcome = simulate(one_seat(SchedulingPolicy::priority), trace);
  for (const std::size_t urgent : {8U, 9U}) {
    for (std::size_t other = 0; other < 8; ++other) {
      EXPECT_LT(outcome.requests[urgent].end_us, outcome.requests[other].begin_us + 1)
          << "request " << urgent << " and " << other;
    }
  }
}

TEST(ScheduleSimulation, nobody_starves_under_shortest_first) {
  // Short ones arrive faster than they can be answered, throughout the trace.
  std::vector<SimulatedRequest> trace = {request_of(20, 10), request_of(400, 400)};
  for (int i = 0; i < 4'000; ++i) trace.push_back(request_of(20, 10, i * 1'000));
  const auto outcome = simulate(one_seat(SchedulingPolicy::sjf), trace);
  expect_all_tokens(trace, outcome);
  const auto ended_before = std::count_if(
      outcome.requests.begin(), outcome.requests.end(),
      [&](const RequestOutcome& other) { return other.end_us < outcome.requests[1].begin_us; });
  // 800 tokens are worth 800 later arrivals, and each short one counts for 30 of them.
  EXPECT_GT(ended_before, 700);
  EXPECT_LT(ended_before, 800);
}

TEST(ScheduleSimulation, a_tiny_pool_preempts_and_all_tokens_come) {
  const std::vector<SimulatedRequest> trace(6, request_of(30, 60));
  SchedulerConfig config = config_of();
  config.kv_cache_blocks = 12;  // of 16 tokens: two requests at their ends, six prompts at the
                                // beginning
  for (const std::int32_t in_flight : {1, 2}) {
    config.max_steps_in_flight = in_flight;
    const auto outcome = simulate(config, trace);
    expect_all_tokens(trace, outcome);
    EXPECT_GT(outcome.counters.preemptions, 0U);
    EXPECT_GT(outcome.computed_tokens, 6 * (30 + 59)) << "nothing was computed again";
  }
  config.max_steps_in_flight = 1;
  config.kv_cache_blocks = 100;
  const auto roomy = simulate(config, trace);
  EXPECT_EQ(roomy.counters.preemptions, 0U);
  EXPECT_EQ(roomy.computed_tokens, 6 * (30 + 59));
}

TEST(ScheduleSimulation, all_end_together_where_sequences_are_swapped_and_nothing_comes_twice) {
  const std::vector<SimulatedRequest> trace(64, request_of(300, 300));
  SchedulerConfig config = config_of();
  config.max_steps_in_flight = 2;
  config.kv_cache_blocks = 1'664;  // of 16 tokens: all prompts, or two thirds of all requests at
                                   // their ends
  const auto computed = simulate(config, trace);
  config.swap_blocks = 2'000;
  const auto swapped = simulate(config, trace);
  expect_all_tokens(trace, swapped);
  EXPECT_GT(computed.counters.preemptions, 0U);
  EXPECT_EQ(swapped.counters.preemptions, 0U);
  EXPECT_GT(swapped.counters.swaps, 0U);
  EXPECT_EQ(swapped.computed_tokens, 64 * (300 + 299));
  EXPECT_LT(static_cast<double>(swapped.steps), 0.85 * static_cast<double>(computed.steps));
  EXPECT_LT(swapped.makespan_us, computed.makespan_us);
}

TEST(ScheduleSimulation, requests_of_a_family_find_their_prefix_in_the_cache) {
  std::vector<SimulatedRequest> trace(10, request_of(100, 4));
  for (std::size_t i = 0; i < trace.size(); ++i) {
    trace[i].arrival_us = static_cast<std::int64_t>(i) * 1'000'000;
    trace[i].prefix_family = static_cast<std::int32_t>(i % 2);
    trace[i].shared_tokens = 64;
  }
  SchedulerConfig config = config_of();
  config.prefix_caching = true;
  const auto cached = simulate(config, trace);
  EXPECT_EQ(cached.counters.prefix_tokens, 8U * 64U);
  expect_all_tokens(trace, cached);
  config.prefix_caching = false;
  const auto plain = simulate(config, trace);
  EXPECT_EQ(plain.counters.prefix_tokens, 0U);
  EXPECT_EQ(plain.computed_tokens - cached.computed_tokens, 8 * 64);
}

TEST(ScheduleSimulation, gives_equal_outcomes_for_equal_seeds_and_others_for_others) {
  TraceSpec spec{.requests = 200,
                 .requests_per_s = 40,
                 .stopping_share = 0.5,
                 .prefix_share = 0.5,
                 .prefix_tokens = 64,
                 .prefix_families = 3,
                 .seed = 17};
  SchedulerConfig config = config_of(SchedulingPolicy::sjf);
  config.max_steps_in_flight = 2;
  config.prefix_caching = true;
  const auto first = simulate(config, drawn(spec));
  const auto again = simulate(config, drawn(spec));
  EXPECT_EQ(first.requests, again.requests);
  EXPECT_EQ(first.steps, again.steps);
  EXPECT_EQ(first.counters.prefix_tokens, again.counters.prefix_tokens);
  spec.seed = 18;
  EXPECT_NE(first.requests, simulate(config, drawn(spec)).requests);
}

TEST(ScheduleSimulation, gives_every_request_all_its_tokens_whatever_the_bounds) {
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const auto trace = drawn({.requests = 40,
                              .requests_per_s = seed % 3 == 0 ? 0.0 : 30.0,
                              .mean_prompt_tokens = 60,
                              .mean_max_tokens = 40,
                              .max_sequence_tokens = 300,
                              .stopping_share = 0.3,
                              .prefix_share = 0.5,
                              .prefix_tokens = 40,
                              .prefix_families = 2,
                              .seed = seed});
    SchedulerConfig config = config_of(static_cast<SchedulingPolicy>(seed % 4));
    config.max_num_seqs = static_cast<std::int32_t>(1 + seed % 7 * 3);
    config.max_num_batched_tokens = seed % 2 == 0 ? 48 : 512;
    config.max_model_len = 300;
    config.kv_cache_blocks = seed % 5 == 0 ? 200 : 24;
    config.micro_batches = static_cast<std::int32_t>(1 + seed % 2);
    config.max_steps_in_flight = static_cast<std::int32_t>(1 + seed % 3);
    config.prefix_caching = seed % 4 < 2;
    config.swap_blocks = seed % 3 == 1 ? 30 : 0;
    StepCost cost;
    cost.stages = config.micro_batches;
    expect_all_tokens(trace, simulate(config, trace, cost));
  }
}

TEST(ScheduleSimulation, refuses_what_cannot_be_simulated_and_names_it) {
  const auto refusal = [](const SchedulerConfig& config, const StepCost& cost,
                          const std::vector<SimulatedRequest>& trace) {
    const auto outcome = simulate_schedule(config, cost, trace);
    return outcome.ok() ? std::string("no error") : outcome.error().message;
  };
  const std::vector<SimulatedRequest> good = {request_of(4, 4)};
  SchedulerConfig config = config_of();
  config.block_size = 0;
  EXPECT_THAT(refusal(config, {}, good), HasSubstr("block_size"));
  EXPECT_THAT(refusal(config_of(), {.us_per_token = -1}, good), HasSubstr("us_per_token is -1"));
  EXPECT_THAT(refusal(config_of(), {.us_per_step = std::nan("")}, good), HasSubstr("us_per_step"));
  EXPECT_THAT(refusal(config_of(), {.stages = 0}, good), HasSubstr("stages is 0"));
  EXPECT_THAT(refusal(config_of(), {}, {request_of(4, 4, 10), request_of(4, 4, 9)}),
              HasSubstr("request 1 comes at 9 us"));
  EXPECT_THAT(refusal(config_of(), {}, {request_of(4, 4), request_of(3'000, 4)}),
              HasSubstr("request 1 of the trace: the prompt has 3000 tokens"));
  SimulatedRequest endless = request_of(4, 4);
  endless.output_tokens = 5;
  EXPECT_THAT(refusal(config_of(), {}, {endless}), HasSubstr("request 0 has 5 tokens"));
  SimulatedRequest sharing = request_of(4, 4);
  sharing.shared_tokens = 5;
  EXPECT_THAT(refusal(config_of(), {}, {sharing}), HasSubstr("request 0 shares 5 of 4"));
}

}  // namespace
}  // namespace troupe
