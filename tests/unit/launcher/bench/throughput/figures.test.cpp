#include "launcher/bench/throughput/figures.hpp"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/bench/throughput/bench_report.hpp"

namespace troupe {
namespace {

using testing::HasSubstr;

TEST(Figures, throughput_counts_answers_until_the_last_one) {
  const std::vector<Outcome> outcomes = {
      {.finished = 2, .prompt_tokens = 10, .output_tokens = 4},
      {.finished = 4, .prompt_tokens = 20, .output_tokens = 6},
      {.finished = 1, .prompt_tokens = 99, .error = "refused"},
  };
  const ThroughputFigures figures = throughput_of(outcomes);
  EXPECT_EQ(figures.requests, 2);
  EXPECT_EQ(figures.failed, 1);
  EXPECT_EQ(figures.input_tokens, 30);
  EXPECT_EQ(figures.output_tokens, 10);
  EXPECT_DOUBLE_EQ(figures.seconds, 4);
  EXPECT_DOUBLE_EQ(figures.per_second(figures.input_tokens), 7.5);
  const auto json = to_json(figures);
  EXPECT_DOUBLE_EQ(json["tokens_per_second"], 10);
  EXPECT_DOUBLE_EQ(json["requests_per_second"], 0.5);
  EXPECT_THAT(to_table(figures), HasSubstr("1 requests failed"));
}

TEST(Figures, latency_divides_the_time_after_the_first_token_by_the_tokens_after_it) {
  const std::vector<Outcome> outcomes = {
      {.submitted = 1, .first_token = 1.5, .finished = 2.5, .output_tokens = 11},
      {.submitted = 3, .first_token = 3.1, .finished = 3.1, .output_tokens = 1},
      {.submitted = 4, .finished = 9, .error = "refused"},
  };
  const LatencyFigures figures = latency_of(outcomes);
  EXPECT_EQ(figures.requests, 2);
  EXPECT_EQ(figures.failed, 1);
  EXPECT_NEAR(figures.first_token_ms.mean, 300, 1e-9);
  EXPECT_NEAR(figures.per_token_ms.mean, 100, 1e-9);
  EXPECT_NEAR(figures.whole_ms.mean, 800, 1e-9);
  EXPECT_NEAR(to_json(figures)["tpot_ms"]["p99"].get<double>(), 100, 1e-9);
}

TEST(Figures, latency_has_no_time_between_the_tokens_of_several_choices) {
  const std::vector<Outcome> outcomes = {
      {.first_token = 1, .finished = 2, .output_tokens = 11},
      {.first_token = 1, .finished = 2, .output_tokens = 41, .choices = 4},
  };
  const LatencyFigures figures = latency_of(outcomes);
  EXPECT_EQ(figures.requests, 2);
  EXPECT_NEAR(figures.per_token_ms.mean, 100, 1e-9);
}

TEST(BenchReport, fits_79_columns_whatever_the_names_and_numbers) {
  JobPlan plan;
  plan.engine.model_path = std::string(200, 'p') + "/model";
  const BenchSubject subject{"throughput", "lengths of " + std::string(200, 'w'), 1'000'000};
  const std::vector<Outcome> outcomes = {
      {.finished = 9e5, .prompt_tokens = 999'999'999'999, .output_tokens = 2}};
  const std::vector<StartupFigures> starts(3, {123456.789, 234567.891});
  std::istringstream lines(bench_heading(subject, plan) + to_table(throughput_of(outcomes)) +
                           to_table(latency_of(outcomes)) + to_table(starts));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 79U) << line;
  EXPECT_THAT(bench_heading(subject, plan), HasSubstr("p/model\n"));
}

TEST(BenchReport, tells_starts_one_by_one_and_on_average) {
  const std::vector<StartupFigures> starts = {{1, 2}, {3, 6}};
  const std::string table = to_table(starts);
  EXPECT_THAT(table, HasSubstr("start 2"));
  EXPECT_THAT(table, HasSubstr("2.000"));
  const auto json = to_json(starts);
  EXPECT_EQ(json["starts"].size(), 2U);
  EXPECT_DOUBLE_EQ(json["first_token_seconds"]["mean"], 4);
}

}  // namespace
}  // namespace troupe
