#include "actors/simulation/schedule_trace.hpp"

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using testing::HasSubstr;

std::vector<SimulatedRequest> drawn(const TraceSpec& spec) {
  auto trace = random_trace(spec);
  EXPECT_TRUE(trace.ok()) << (trace.ok() ? "" : trace.error().message);
  return trace.ok() ? *std::move(trace) : std::vector<SimulatedRequest>{};
}

template <class Member>
double mean_of(const std::vector<SimulatedRequest>& trace, Member member) {
  double sum = 0.0;
  for (const SimulatedRequest& request : trace) sum += request.*member;
  return sum / static_cast<double>(trace.size());
}

double share_of(const std::vector<SimulatedRequest>& trace,
                bool (*holds)(const SimulatedRequest&)) {
  return static_cast<double>(std::count_if(trace.begin(), trace.end(), holds)) /
         static_cast<double>(trace.size());
}

TEST(ScheduleTrace, comes_at_the_rate_and_in_the_lengths_that_are_asked_for) {
  // For 20,000 draws; tolerances are 4 standard errors, with or without cutting off the longest of
  // the log-normal.
  for (const LengthSpread spread : {LengthSpread::uniform, LengthSpread::lognormal}) {
    const auto trace = drawn({.requests = 20'000,
                              .requests_per_s = 50,
                              .spread = spread,
                              .mean_prompt_tokens = 100,
                              .mean_max_tokens = 40,
                              .max_sequence_tokens = 1 << 20,
                              .seed = 3});
    EXPECT_NEAR(static_cast<double>(trace.back().arrival_us) * 1e-6, 400.0, 12.0);
    EXPECT_NEAR(mean_of(trace, &SimulatedRequest::prompt_tokens), 100.0, 4.0);
    EXPECT_NEAR(mean_of(trace, &SimulatedRequest::max_tokens), 40.0, 1.6);
    EXPECT_TRUE(std::is_sorted(trace.begin(), trace.end(), [](const auto& a, const auto& b) {
      return a.arrival_us < b.arrival_us;
    }));
  }
}

TEST(ScheduleTrace, shares_prefixes_and_stops_early_as_often_as_asked_for) {
  const auto trace = drawn({.requests = 4'000,
                            .mean_prompt_tokens = 50,
                            .max_sequence_tokens = 500,
                            .stopping_share = 0.25,
                            .prefix_share = 0.6,
                            .prefix_tokens = 96,
                            .prefix_families = 4,
                            .seed = 5});
  EXPECT_NEAR(share_of(trace, [](const auto& r) { return r.prefix_family >= 0; }), 0.6, 0.04);
  EXPECT_NEAR(share_of(trace, [](const auto& r) { return r.prefix_family == 3; }), 0.15, 0.03);
  const double stopped =
      share_of(trace, [](const auto& r) { return r.output_tokens < r.max_tokens; });
  EXPECT_GT(stopped, 0.20);
  EXPECT_LT(stopped, 0.28);
  for (const SimulatedRequest& request : trace) {
    EXPECT_EQ(request.arrival_us, 0);
    EXPECT_EQ(request.shared_tokens, request.prefix_family < 0 ? 0 : 96);
    EXPECT_GT(request.prompt_tokens, request.shared_tokens);
    EXPECT_LE(request.prompt_tokens + request.max_tokens, 500);
    EXPECT_GE(request.output_tokens, 1);
    EXPECT_LE(request.output_tokens, request.max_tokens);
  }
}

TEST(ScheduleTrace, keeps_arrivals_and_lengths_when_another_share_is_asked_for) {
  TraceSpec spec{.requests = 50, .requests_per_s = 10, .seed = 9};
  const auto plain = drawn(spec);
  spec.stopping_share = 0.5;
  const auto stopping = drawn(spec);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(plain[i].arrival_us, stopping[i].arrival_us);
    EXPECT_EQ(plain[i].prompt_tokens, stopping[i].prompt_tokens);
    EXPECT_EQ(plain[i].max_tokens, stopping[i].max_tokens);
  }
  EXPECT_EQ(plain, drawn({.requests = 50, .requests_per_s = 10, .seed = 9}));
}

TEST(ScheduleTrace, due_times_come_later_for_patient_requests) {
  std::vector<SimulatedRequest> trace(1'000);
  for (SimulatedRequest& request : trace) {
    request.arrival_us = 500;
    request.max_tokens = 10;
  }
  const auto set = set_targets(
      {.first_token_us = 1'000, .each_token_us = 100, .urgent_share = 0.3, .patience = 5.0}, trace);
  ASSERT_TRUE(set.ok()) << set.error().message;
  EXPECT_NEAR(share_of(trace, [](const auto& r) { return r.priority == 0; }), 0.3, 0.06);
  for (const SimulatedRequest& request : trace) {
    const std::int64_t times = request.priority == 0 ? 1 : 5;
    EXPECT_EQ(request.first_token_due_us, 500 + times * 1'000);
    EXPECT_EQ(request.deadline_us, 500 + times * 2'000);
  }
}

TEST(ScheduleTrace, refuses_numbers_out_of_range_by_name) {
  const auto refusal = [](const TraceSpec& spec) {
    const auto trace = random_trace(spec);
    return trace.ok() ? std::string("no error") : trace.error().message;
  };
  EXPECT_THAT(refusal({.requests = 0}), HasSubstr("requests is 0"));
  EXPECT_THAT(refusal({.requests_per_s = -1}), HasSubstr("requests_per_s is -1"));
  EXPECT_THAT(refusal({.mean_max_tokens = 0}), HasSubstr("mean_max_tokens"));
  EXPECT_THAT(refusal({.prefix_share = 1.5}), HasSubstr("prefix_share is 1.5"));
  EXPECT_THAT(refusal({.stopping_share = -0.5}), HasSubstr("stopping_share"));
  EXPECT_THAT(refusal({.max_sequence_tokens = 100, .prefix_tokens = 99}),
              HasSubstr("leaves no room"));
  std::vector<SimulatedRequest> trace(1);
  EXPECT_FALSE(set_targets({.patience = 0.5}, trace).ok());
  EXPECT_FALSE(set_targets({.urgent_share = 2.0}, trace).ok());
  EXPECT_FALSE(set_targets({.first_token_us = -1}, trace).ok());
}

}  // namespace
}  // namespace troupe
