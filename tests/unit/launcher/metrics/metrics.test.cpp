#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/metrics/job_metrics.hpp"
#include "launcher/metrics/metrics_endpoint.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

using testing::HasSubstr;
using testing::Not;

Completion answered(std::size_t prompt, std::size_t tokens, FinishReason reason) {
  Completion completion;
  completion.prompt_ids.resize(prompt);
  completion.choices.resize(1);
  completion.choices[0].token_ids.resize(tokens);
  completion.choices[0].finish_reason = reason;
  completion.first_token_us = 200'000;
  completion.last_token_us = 200'000 + 50'000 * (tokens - 1);
  return completion;
}

TEST(JobMetrics, tell_load_and_requests_under_the_names_of_vllm) {
  JobMetrics metrics("fable", 100);
  EngineReport report;
  report.stats.running = 3;
  report.stats.waiting = 4;
  report.stats.kv_use = 0.25;
  report.stats.output_tokens = 77;
  report.stats.scheduler.prompt_tokens = 75;
  report.stats.scheduler.recomputed_tokens = 15;  // after the two preemptions
  report.stats.scheduler.looked_up_tokens = 100;
  report.stats.scheduler.prefix_tokens = 40;
  report.stats.scheduler.preemptions = 2;
  report.stats.scheduler.swaps = 3;
  report.completions = {answered(7, 11, FinishReason::length), answered(60, 2, FinishReason::stop)};
  Completion refused;
  refused.error_code = "invalid_prompt";
  report.completions.push_back(refused);
  metrics.observe(report);
  metrics.count_line_error("invalid_json");
  metrics.count_recovery({.lost = {}});  // it has begun
  metrics.count_recovery({.lost = {}, .seconds = 0.25, .sequences = 7});
  metrics.count_recovery({.lost = {}, .seconds = 0.5, .sequences = 3});
  metrics.set_lines(4, 9);
  metrics.set_domains(2, 3);
  EXPECT_THAT(metrics.text(), Not(HasSubstr("rank_busy")));
  metrics.set_rank_busy({0.5, 0.75});
  const std::string text = metrics.text();
  const std::string labels = "{model_name=\"fable\",engine=\"0\"";
  for (const std::string& line : {
           "vllm:num_requests_running" + labels + "} 3",
           "vllm:num_requests_waiting" + labels + "} 4",
           "vllm:kv_cache_usage_perc" + labels + "} 0.25",
           "vllm:prefix_cache_queries_total" + labels + "} 100",
           "vllm:prefix_cache_hits_total" + labels + "} 40",
           "vllm:num_preemptions_total" + labels + "} 5",
           "troupe:swaps_total" + labels + "} 3",
           "vllm:prompt_tokens_total" + labels + "} 100",
           "vllm:generation_tokens_total" + labels + "} 77",
           "vllm:request_success_total" + labels + ",finished_reason=\"length\"} 1",
           "vllm:request_success_total" + labels + ",finished_reason=\"stop\"} 1",
           "vllm:time_to_first_token_seconds_bucket" + labels + ",le=\"0.1\"} 0",
           "vllm:time_to_first_token_seconds_bucket" + labels + ",le=\"0.25\"} 2",
           "vllm:time_to_first_token_seconds_bucket" + labels + ",le=\"2560\"} 2",
           "vllm:e2e_request_latency_seconds_bucket" + labels + ",le=\"0.3\"} 1",
           "vllm:e2e_request_latency_seconds_bucket" + labels + ",le=\"0.8\"} 2",
           "vllm:e2e_request_latency_seconds_count" + labels + "} 2",
           "vllm:request_time_per_output_token_seconds_bucket" + labels + ",le=\"0.025\"} 0",
           "vllm:request_prompt_tokens_bucket" + labels + ",le=\"5\"} 0",
           "vllm:request_prompt_tokens_bucket" + labels + ",le=\"10\"} 1",
           "vllm:request_prompt_tokens_bucket" + labels + ",le=\"100\"} 2",
           "vllm:request_generation_tokens_sum" + labels + "} 13",
           "troupe:line_errors_total" + labels + ",code=\"invalid_json\"} 1",
           "troupe:line_errors_total" + labels + ",code=\"invalid_prompt\"} 1",
           "troupe:rank_busy_ratio" + labels + ",rank=\"1\"} 0.75",
           "troupe:lines_done_total" + labels + "} 4",
           "troupe:step_domains" + labels + "} 3",
           "troupe:step_domains_serving" + labels + "} 2",
           "troupe:recoveries_total" + labels + "} 2",
           "troupe:recovery_seconds_total" + labels + "} 0.75",
           "troupe:recovered_sequences_total" + labels + "} 10",
           "troupe:input_lines" + labels + "} 9",
       }) {
    EXPECT_THAT(text, HasSubstr(line + "\n"));
  }
  EXPECT_THAT(text, Not(HasSubstr("le=\"200\"")));
}

TEST(JobMetrics, count_layers_that_have_fallen_back_once_for_each_domain) {
  JobMetrics metrics("fable", 100);
  const auto line = [](int layers) {
    return "troupe:fallen_back_layers_total{model_name=\"fable\",engine=\"0\"} " +
           std::to_string(layers) + "\n";
  };
  EXPECT_THAT(metrics.text(), HasSubstr(line(0)));
  EngineReport report;
  report.widened = {{.layer = 2, .largest = 5120.0F}, {.layer = 7, .largest = 600.0F}};
  metrics.observe(report);
  EXPECT_THAT(metrics.text(), HasSubstr(line(2)));
  metrics.observe(report);  // told again by an executor that has taken over
  EXPECT_THAT(metrics.text(), HasSubstr(line(2)));
  report.domain = 1;
  report.widened = {{.layer = 2, .largest = 5120.0F}};
  metrics.observe(report);
  report.widened.clear();
  metrics.observe(report);
  EXPECT_THAT(metrics.text(), HasSubstr(line(3)));
}

TEST(MetricsEndpoint, removes_what_a_killed_run_left_also_when_metrics_are_off) {
  const tests::TemporaryFolder folder;
  const auto note = folder.write("metrics.txt", "http://127.0.0.1:1/metrics\n");
  Config config;
  const auto endpoint = MetricsEndpoint::open(config, 16, folder.path().string());
  EXPECT_TRUE(endpoint.ok());
  EXPECT_FALSE(std::filesystem::exists(note));
}

}  // namespace
}  // namespace troupe
