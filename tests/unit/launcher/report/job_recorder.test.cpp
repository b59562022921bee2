#include "launcher/report/job_recorder.hpp"

#include <filesystem>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "launcher/report/report_json.hpp"
#include "tests/unit/launcher/report/small_job.hpp"

namespace troupe::report_test {
namespace {

TEST(JobRecorder, counts_answers_errors_and_tokens) {
  const auto made = small_job();
  const JobRecorder& job = *made;
  EXPECT_EQ(job.answers(), 3U);
  EXPECT_EQ(job.errors().count, 2U);
  EXPECT_EQ(job.dropped(), 2U);
  const JobFigures figures = job.figures(0);
  EXPECT_EQ(figures.prompt_tokens, 9U);
  EXPECT_EQ(figures.answer_tokens, 24U);
  EXPECT_EQ(figures.ttft_us.count(), 3U);
  EXPECT_DOUBLE_EQ(figures.ttft_us.quantile_us(0.5), 120'000);
  EXPECT_DOUBLE_EQ(figures.e2e_us.quantile_us(1), 240'000);
  EXPECT_EQ(figures.inter_token_us.count(), 21U);
  EXPECT_DOUBLE_EQ(figures.seconds, 3);
  EXPECT_DOUBLE_EQ(figures.serving_seconds, 2);
}

TEST(JobRecorder, goes_on_with_what_earlier_runs_have_measured) {
  const auto first = small_job();
  JobRecorder second(facts(), 0);
  second.go_on(5, 2, first->figures(0));
  second.engine_ready(500'000);
  EngineReport report;
  report.completions = {completion(300, 400, 4)};
  StepRecord step;
  step.planned_us = 600'000;
  step.answered_us = 700'000;
  step.output_tokens = 4;
  report.steps = {step};
  report.stats.output_tokens = 4;
  report.stats.running = 1;
  second.take(report);
  const JobFigures killed = second.figures(900'000);
  EXPECT_EQ(killed.runs.size(), 2U) << "as it would be found if it were killed now";
  EXPECT_DOUBLE_EQ(killed.runs[1].seconds, 0.9);
  second.finish(JobOutcome::answered, "", 1'000'000);
  EXPECT_EQ(second.answers(), 4U);
  const JobFigures figures = second.figures(0);
  EXPECT_DOUBLE_EQ(figures.seconds, 4);
  EXPECT_DOUBLE_EQ(figures.serving_seconds, 2.5);
  EXPECT_EQ(figures.answer_tokens, 28U);
  EXPECT_EQ(figures.stats.output_tokens, 28U);
  EXPECT_EQ(figures.stats.running, 0U);
  EXPECT_EQ(figures.e2e_us.count(), 4U);
  EXPECT_EQ(figures.runs[0].answers, 3U);
  EXPECT_EQ(figures.runs[1].answers, 1U);
  const auto points = figures.steps.points(1000);
  ASSERT_FALSE(points.empty());
  EXPECT_NEAR(points.back().seconds + points.back().width, 2.2, 0.05)
      << "two seconds of the first run, then 0.2 of this one";
}

TEST(JobFigures, are_read_for_the_same_job_and_version_alone) {
  const std::string path = testing::TempDir() + fmt::format("figures_{}.bin", ::getpid());
  const JobIdentity job{.id = 7, .created = 100};
  ASSERT_TRUE(write_figures(path, "1.0", job, small_job()->figures(0)).ok());
  const auto read = read_figures(path, "1.0", job);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->answer_tokens, 24U);
  EXPECT_EQ(read->steps.points(100).size(), small_job()->figures(0).steps.points(100).size());
  EXPECT_FALSE(read_figures(path, "1.1", job).has_value());
  EXPECT_FALSE(read_figures(path, "1.0", {.id = 7, .created = 101}).has_value());
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_FALSE(read_figures(path, "1.0", job).has_value());
  std::filesystem::remove(path);
  EXPECT_FALSE(read_figures(path, "1.0", job).has_value());
}

TEST(JobRecorder, does_not_count_the_wait_for_input_as_work) {
  JobRecorder job(facts(), 0);
  job.engine_ready(1'000'000);
  for (const std::int64_t ms : {1000, 1500, 2500}) job.wait_for_input(true, ms * 1000);
  job.wait_for_input(false, 2'600'000);
  job.wait_for_input(false, 2'900'000);
  job.wait_for_input(true, 3'000'000);
  EngineReport report;
  report.stats.output_tokens = 100;
  job.take(report);
  job.finish(JobOutcome::drained, "", 5'000'000);
  EXPECT_DOUBLE_EQ(job.figures(0).serving_seconds, 4);
  EXPECT_DOUBLE_EQ(job.figures(0).input_wait_seconds, 1.6 + 2);
  const auto tokens = report_json(job).at("tokens");
  EXPECT_DOUBLE_EQ(tokens.at("generated_per_second"), 250);
}

TEST(JobRecorder, counts_as_good_what_kept_every_objective) {
  // 100 ms, 10 ms between tokens; 120 ms, 10 ms; 200 ms, which is late.
  EXPECT_EQ(small_job()->figures(0).good_answers, 2U);
  JobFacts strict = facts();
  strict.objectives = {.ttft_ms = std::nullopt, .itl_ms = 9.9, .e2e_ms = std::nullopt};
  EXPECT_EQ(small_job(strict)->figures(0).good_answers, 0U);
  strict.objectives = {.ttft_ms = std::nullopt, .itl_ms = std::nullopt, .e2e_ms = 210};
  EXPECT_EQ(small_job(strict)->figures(0).good_answers, 2U);
}

TEST(JobRecorder, leaves_answers_without_a_token_out_of_the_latencies) {
  JobRecorder job(facts(), 0);
  EngineReport report;
  report.completions = {completion(0, 0, 0)};
  job.take(report);
  EXPECT_EQ(job.answers(), 1U);
  EXPECT_EQ(job.figures(0).ttft_us.count(), 0U);
  EXPECT_EQ(job.figures(0).good_answers, 0U);
}

TEST(JobRecorder, tells_the_share_of_time_outside_the_model_once_there_was_any) {
  EXPECT_FALSE(JobRecorder(facts(), 0).share_outside_model().has_value());
  const auto share = small_job()->share_outside_model();
  ASSERT_TRUE(share.has_value());
  EXPECT_NEAR(*share, 0.2, 1e-9);
}

TEST(JobRecorder, tells_how_busy_each_rank_was_between_its_last_two_telemetries) {
  JobRecorder job(facts(), 0);
  EXPECT_TRUE(job.rank_busy().empty());
  job.take(worker(1, 10));
  EXPECT_TRUE(job.rank_busy().empty()) << "rank 0 has told nothing yet";
  job.take(worker(0, 10));
  // 10 steps of 10 ms, half of each spent waiting, in a second.
  ASSERT_EQ(job.rank_busy().size(), 2U);
  EXPECT_NEAR(job.rank_busy()[0], 0.05, 1e-9);
  ProcessTelemetry later = worker(0, 90);
  later.now_ns += 500'000'000;
  job.take(later);
  EXPECT_NEAR(job.rank_busy()[0], 80 * 0.005 / 0.5, 1e-9);
  EXPECT_NEAR(job.rank_busy()[1], 0.05, 1e-9);
}

TEST(JobRecorder, keeps_spans_and_counts_when_only_totals_come_later) {
  JobRecorder job(facts(), 0);
  job.take(worker(0, 10));
  ProcessTelemetry totals_only = worker(0, 20);
  totals_only.kept = {};
  totals_only.expert_rows = {};
  totals_only.rows = 0;
  job.take(totals_only);
  const auto processes = job.processes();
  ASSERT_EQ(processes.size(), 2U);
  EXPECT_EQ(processes[0].process, "launcher");
  EXPECT_EQ(processes[1].totals.count(SpanKind::step), 20U);
  EXPECT_EQ(processes[1].kept.spans.size(), 6U);
  EXPECT_EQ(processes[1].rows, 100U);
  EXPECT_EQ(processes[1].expert_rows.rows.size(), 4U);
}

TEST(JobRecorder, lists_processes_as_driver_executors_ranks) {
  std::vector<std::string> names;
  for (const auto& process : small_job()->processes()) names.push_back(process.process);
  EXPECT_EQ(names, (std::vector<std::string>{"launcher", "executor", "worker-0", "worker-1"}));
}

TEST(RankUse, divides_all_the_time_since_a_rank_serves) {
  const RankUse use = use_of(worker(0, 10));
  EXPECT_NEAR(use.computing, 0.05, 1e-9);
  EXPECT_NEAR(use.exchanging.value(), 0.02, 1e-9);
  EXPECT_NEAR(use.stages.value(), 0.03, 1e-9);
  EXPECT_NEAR(use.waiting, 0.4, 1e-9);
  EXPECT_NEAR(use.rest, 0.5, 1e-9);
}

}  // namespace
}  // namespace troupe::report_test
