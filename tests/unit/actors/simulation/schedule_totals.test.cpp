#include "actors/simulation/schedule_totals.hpp"

#include <array>
#include <numeric>

#include <gtest/gtest.h>

namespace troupe {
namespace {

TEST(ScheduleTotals, percentiles_are_values_that_occur) {
  std::vector<std::int64_t> times(100);
  std::iota(times.rbegin(), times.rend(), 1);
  const TimeSpread spread = spread_of(times);
  EXPECT_DOUBLE_EQ(spread.mean_us, 50.5);
  EXPECT_EQ(spread.p50_us, 50);
  EXPECT_EQ(spread.p95_us, 95);
  EXPECT_EQ(spread.p99_us, 99);
  EXPECT_EQ(spread_of({7}).p99_us, 7);
  EXPECT_EQ(spread_of({7}).p50_us, 7);
  EXPECT_EQ(spread_of({}).p50_us, 0);
}

TEST(ScheduleTotals, jain_index_is_one_for_equal_shares_and_one_nth_for_one_taker) {
  EXPECT_DOUBLE_EQ(jain_index(std::array{3.0, 3.0, 3.0}), 1.0);
  EXPECT_DOUBLE_EQ(jain_index(std::array{0.0, 8.0, 0.0, 0.0}), 0.25);
  EXPECT_DOUBLE_EQ(jain_index(std::array{1.0, 3.0}), 0.8);
  EXPECT_DOUBLE_EQ(jain_index({}), 1.0);
}

TEST(ScheduleTotals, good_requests_are_those_that_met_every_due_time_they_have) {
  std::array<SimulatedRequest, 4> trace;
  ScheduleOutcome outcome;
  outcome.makespan_us = 2'000'000;
  outcome.requests.assign(
      4, {.begin_us = 100, .first_token_us = 300, .end_us = 1'000, .alone_us = 500, .tokens = 10});
  trace[1].deadline_us = 999;
  trace[2].first_token_due_us = 299;
  trace[2].deadline_us = 1'000;
  trace[3].first_token_due_us = 300;
  trace[3].deadline_us = 1'000;
  const ScheduleTotals totals = totals_of(trace, outcome);
  EXPECT_DOUBLE_EQ(totals.goodput, 0.5);
  EXPECT_EQ(totals.deadline_misses, 1);
  EXPECT_EQ(totals.output_tokens, 40);
  EXPECT_DOUBLE_EQ(totals.output_tokens_per_s, 20.0);
  EXPECT_DOUBLE_EQ(totals.worst_slowdown, 2.0);
  EXPECT_DOUBLE_EQ(totals.fairness, 1.0);
  EXPECT_EQ(totals.queueing.p50_us, 100);
  EXPECT_EQ(totals.first_token.p50_us, 300);
  EXPECT_EQ(totals.end_to_end.p50_us, 1'000);
}

TEST(ScheduleTotals, slowdowns_that_differ_are_less_fair) {
  std::array<SimulatedRequest, 2> trace;
  ScheduleOutcome outcome;
  outcome.requests = {{.end_us = 100, .alone_us = 100}, {.end_us = 300, .alone_us = 100}};
  const ScheduleTotals totals = totals_of(trace, outcome);
  EXPECT_DOUBLE_EQ(totals.fairness, 0.8);
  EXPECT_DOUBLE_EQ(totals.worst_slowdown, 3.0);
}

}  // namespace
}  // namespace troupe
