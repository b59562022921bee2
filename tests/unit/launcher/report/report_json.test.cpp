#include "launcher/report/report_json.hpp"

#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/support/source_path.hpp"
#include "tests/unit/launcher/report/small_job.hpp"

namespace troupe::report_test {
namespace {

using nlohmann::ordered_json;

TEST(ReportJson, has_the_numbers_of_the_job) {
  const ordered_json report = report_json(*small_job());
  EXPECT_EQ(report.at("format"), report_format);
  EXPECT_EQ(report.at("job").at("name"), "tales");
  EXPECT_EQ(report.at("job").at("outcome"), "finished with error lines");
  EXPECT_EQ(report.at("job").at("reason"), nullptr);
  EXPECT_EQ(report.at("job").at("began"), "2026-11-21T11:00:12Z");
  EXPECT_EQ(
      report.at("requests"),
      ordered_json({{"answered", 3}, {"errors", 2}, {"not_begun", 2}, {"answered_before", 0}}));
  EXPECT_EQ(report.at("errors").at("count"), 2);
  EXPECT_EQ(report.at("errors").at("by_code"),
            ordered_json({{"context_length_exceeded", 1}, {"invalid_json", 1}}));
  EXPECT_EQ(report.at("errors").at("first").at("line"), 2);
  EXPECT_EQ(report.at("runs").size(), 1U);
  EXPECT_EQ(report.at("tokens").at("output"), 24);
  EXPECT_EQ(report.at("tokens").at("shared_reads"), 640);
  EXPECT_DOUBLE_EQ(report.at("tokens").at("generated_per_second"), 12);
  EXPECT_DOUBLE_EQ(report.at("steps").at("share_outside_model"), 0.2);
  EXPECT_DOUBLE_EQ(report.at("steps").at("peak_kv_use"), 0.25);
  EXPECT_DOUBLE_EQ(report.at("latency_ms").at("ttft").at("p50"), 120);
  EXPECT_DOUBLE_EQ(report.at("latency_ms").at("itl").at("mean"), 10);
  EXPECT_EQ(report.at("goodput").at("good_answers"), 2);
  EXPECT_EQ(report.at("goodput").at("e2e_ms"), nullptr);
  EXPECT_DOUBLE_EQ(report.at("goodput").at("answers_per_second"), 1);
}

TEST(ReportJson, names_the_parts_that_are_of_the_last_of_several_runs) {
  const auto first = small_job();
  EXPECT_EQ(report_json(*first).at("last_run_only"), ordered_json::array());
  JobRecorder second(facts(), 0);
  second.go_on(5, 2, first->figures(0));
  second.finish(JobOutcome::answered, "", 1'000'000);
  EXPECT_EQ(report_json(second).at("last_run_only"),
            ordered_json::array({"recoveries", "domain_changes", "precision", "ranks", "hosts",
                                 "links", "experts", "processes", "trace.json"}));
}

TEST(ReportJson, tells_what_matrices_of_which_ranks_were_multiplied_as) {
  JobFacts of = facts();
  of.dtype = "bf16";
  of.quantization = "fp8";
  of.kv_dtype = "int8";
  JobRecorder job(of, 0);
  for (const std::int32_t rank : {0, 1, 2}) {
    ProcessTelemetry told = worker(rank);
    told.kernels = {"bf16: head"};
    if (rank < 2) told.kernels.push_back("fp8 codes, activations as fp8 (W8A8): o_proj 0-1");
    job.take(std::move(told));
  }
  const ordered_json precision = report_json(job).at("precision");
  EXPECT_EQ(precision.at("dtype"), "bf16");
  EXPECT_EQ(precision.at("quantization"), "fp8");
  EXPECT_EQ(precision.at("kv_cache"), "int8");
  const auto kernel = [](const char* name, const char* matrices, std::vector<int> ranks) {
    return ordered_json({{"kernel", name}, {"matrices", matrices}, {"ranks", std::move(ranks)}});
  };
  EXPECT_EQ(
      precision.at("kernels"),
      ordered_json::array({kernel("bf16", "head", {0, 1, 2}),
                           kernel("fp8 codes, activations as fp8 (W8A8)", "o_proj 0-1", {0, 1})}));
}

TEST(ReportJson, tells_each_layer_that_has_fallen_back_once) {
  JobFacts of = facts();
  of.fallback = "w8a16";
  JobRecorder job(of, 0);
  EngineReport report;
  report.widened = {{3, 5120.5F, 1, 17}, {4, INFINITY, 0, 17}};
  job.take(report);
  report.widened = {{3, 600.0F, 0, 2}};  // of an executor that has taken over
  job.take(report);
  report.domain = 1;
  job.take(report);
  const ordered_json precision = report_json(job).at("precision");
  EXPECT_EQ(precision.at("fallback"), "w8a16");
  const ordered_json& fallen = precision.at("fallen_back");
  ASSERT_EQ(fallen.size(), 3U);
  EXPECT_EQ(
      fallen[0],
      ordered_json({{"domain", 0}, {"layer", 3}, {"largest", 5120.5}, {"rank", 1}, {"step", 17}}));
  EXPECT_EQ(fallen[1].at("largest"), nullptr);
  EXPECT_EQ(fallen[2].at("domain"), 1);
}

TEST(ReportJson, tells_which_step_domains_were_dropped_and_are_back) {
  JobRecorder job(facts(), 0);
  job.take(EngineDomainChange{.kind = EngineDomainChange::Kind::dropped,
                              .domain = 1,
                              .nodes = {"h2"},
                              .why = "no node",
                              .requests = 7,
                              .serving = 1,
                              .all = 2});
  job.take(EngineDomainChange{.kind = EngineDomainChange::Kind::back,
                              .domain = 1,
                              .nodes = {"h3"},
                              .why = {},
                              .serving = 2,
                              .all = 2,
                              .seconds = 3.5});
  const auto changes = report_json(job).at("domain_changes");
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_EQ(changes[0].at("change"), "dropped");
  EXPECT_EQ(changes[0].at("requests"), 7);
  EXPECT_EQ(changes[0].at("nodes").at(0), "h2");
  EXPECT_EQ(changes[1].at("change"), "back");
  EXPECT_EQ(changes[1].at("serving"), 2);
  EXPECT_DOUBLE_EQ(changes[1].at("seconds"), 3.5);
}

TEST(ReportJson, does_not_take_exchanges_on_gpus_for_known) {
  ProcessTelemetry on_gpu = worker(0);
  on_gpu.exchanges_on_device = true;
  const RankUse use = use_of(on_gpu);
  EXPECT_FALSE(use.exchanging.has_value());
  EXPECT_FALSE(use.stages.has_value());
  EXPECT_DOUBLE_EQ(use.computing, 0.1) << "the whole of ten steps of 10 ms";
  EXPECT_DOUBLE_EQ(use.computing + use.waiting + use.rest, 1.0);

  const auto job = small_job();
  job->take(on_gpu);
  const ordered_json rank = report_json(*job).at("ranks").at(0);
  EXPECT_EQ(rank.at("exchange_seconds"), nullptr);
  EXPECT_EQ(rank.at("stage_seconds"), nullptr);
}

TEST(ReportJson, puts_the_expert_rows_of_all_ranks_into_one_table) {
  const ordered_json experts = report_json(*small_job()).at("experts");
  EXPECT_EQ(experts.at("experts_per_token"), 2);
  EXPECT_EQ(experts.at("rows"), ordered_json::parse("[[80,60,40,20],[80,60,40,20]]"));
}

TEST(ReportJson, has_the_sums_of_its_columns_over_time) {
  const ordered_json time = report_json(*small_job()).at("over_time");
  const double interval = time.at("interval_seconds");
  double output = 0;
  for (const auto& rate : time.at("output_tokens_per_second")) {
    output += rate.get<double>() * interval;
  }
  EXPECT_NEAR(output, 24, 0.01);
  std::set<std::size_t> lengths;
  for (const auto& [name, column] : time.items()) {
    if (column.is_array()) lengths.insert(column.size());
  }
  EXPECT_EQ(lengths, (std::set<std::size_t>{50})) << time;
}

TEST(ReportJson, says_null_for_what_there_was_not) {
  JobFacts plain = facts();
  plain.objectives = {};
  JobRecorder job(plain, 0);
  job.finish(JobOutcome::failed, "worker-0: no memory", 500'000);
  const ordered_json report = report_json(job);
  EXPECT_EQ(report.at("job").at("outcome"), "failed");
  EXPECT_EQ(report.at("job").at("reason"), "worker-0: no memory");
  EXPECT_EQ(report.at("goodput"), nullptr);
  EXPECT_EQ(report.at("experts"), nullptr);
  EXPECT_EQ(report.at("steps").at("share_outside_model"), nullptr);
  EXPECT_EQ(report.at("latency_ms").at("e2e").at("count"), 0);
  EXPECT_TRUE(report.at("ranks").empty());
  EXPECT_TRUE(report.at("over_time").at("seconds").empty());
}

TEST(ReportJson, is_text_whatever_bytes_its_names_hold) {
  JobFacts odd = facts();
  odd.model_path = "\xff\xfe\"\n";
  const std::string text = to_text(report_json(*small_job(odd)));
  EXPECT_TRUE(ordered_json::accept(text)) << text;
}

/// Collects every field name, except those of spans.
void collect_keys(const ordered_json& value, std::set<std::string>& keys) {
  for (const auto& [key, inner] : value.items()) {
    if (value.is_object()) keys.insert(key);
    if (key != "spans" && inner.is_structured()) collect_keys(inner, keys);
  }
}

TEST(OperationsPage, names_every_field_of_the_report) {
  std::ifstream file(test::source_path("docs/operations.md"));
  std::stringstream page;
  page << file.rdbuf();
  std::set<std::string> keys;
  collect_keys(report_json(*small_job()), keys);
  ASSERT_GT(keys.size(), 60U);
  std::string missing;
  for (const std::string& key : keys) {
    if (page.str().find("`" + key + "`") == std::string::npos) missing += " " + key;
  }
  EXPECT_EQ(missing, "") << "docs/operations.md does not say what these are";
}

}  // namespace
}  // namespace troupe::report_test
