#include "actors/simulation/schedule_totals.hpp"

#include <array>

#include <gtest/gtest.h>

namespace troupe {
namespace {

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
  EXPECT_DOUBLE_EQ(totals.queueing_us.p50, 100);
  EXPECT_DOUBLE_EQ(totals.first_token_us.p50, 300);
  EXPECT_DOUBLE_EQ(totals.end_to_end_us.p50, 1'000);
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
