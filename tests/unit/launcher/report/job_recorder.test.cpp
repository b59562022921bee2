#include "launcher/report/job_recorder.hpp"

#include <gtest/gtest.h>

#include "launcher/report/report_json.hpp"
#include "tests/unit/launcher/report/small_job.hpp"

namespace troupe::report_test {
namespace {

TEST(JobRecorder, counts_answers_errors_and_tokens) {
  const auto made = small_job();
  const JobRecorder& job = *made;
  EXPECT_EQ(job.answers(), 3U);
  EXPECT_EQ(job.errors(), 2U);
  EXPECT_EQ(job.dropped(), 2U);
  EXPECT_EQ(job.prompt_tokens(), 9U);
  EXPECT_EQ(job.answer_tokens(), 24U);
  EXPECT_EQ(job.ttft_us().count(), 3U);
  EXPECT_DOUBLE_EQ(job.ttft_us().quantile_us(0.5), 120'000);
  EXPECT_DOUBLE_EQ(job.e2e_us().quantile_us(1), 240'000);
  EXPECT_EQ(job.inter_token_us().count(), 21U);
  EXPECT_DOUBLE_EQ(job.seconds(), 3);
  EXPECT_DOUBLE_EQ(job.serving_seconds(), 2);
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
  EXPECT_DOUBLE_EQ(job.serving_seconds(), 4);
  EXPECT_DOUBLE_EQ(job.input_wait_seconds(), 1.6 + 2);
  EXPECT_DOUBLE_EQ(job.working_seconds(), 0.4);
  const auto tokens = report_json(job).at("tokens");
  EXPECT_DOUBLE_EQ(tokens.at("generated_per_second"), 250);
}

TEST(JobRecorder, counts_as_good_what_kept_every_objective) {
  // 100 ms, 10 ms between tokens; 120 ms, 10 ms; 200 ms, which is late.
  EXPECT_EQ(small_job()->good_answers(), 2U);
  JobFacts strict = facts();
  strict.objectives = {.ttft_ms = std::nullopt, .itl_ms = 9.9, .e2e_ms = std::nullopt};
  EXPECT_EQ(small_job(strict)->good_answers(), 0U);
  strict.objectives = {.ttft_ms = std::nullopt, .itl_ms = std::nullopt, .e2e_ms = 210};
  EXPECT_EQ(small_job(strict)->good_answers(), 2U);
}

TEST(JobRecorder, leaves_answers_without_a_token_out_of_the_latencies) {
  JobRecorder job(facts(), 0);
  EngineReport report;
  report.completions = {completion(0, 0, 0)};
  job.take(report);
  EXPECT_EQ(job.answers(), 1U);
  EXPECT_EQ(job.ttft_us().count(), 0U);
  EXPECT_EQ(job.good_answers(), 0U);
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
  // 10 steps of 10 ms of which 5 are spent waiting, in a second.
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
  EXPECT_NEAR(use.exchanging, 0.02, 1e-9);
  EXPECT_NEAR(use.stages, 0.03, 1e-9);
  EXPECT_NEAR(use.waiting, 0.4, 1e-9);
  EXPECT_NEAR(use.rest, 0.5, 1e-9);
}

}  // namespace
}  // namespace troupe::report_test
