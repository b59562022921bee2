#include "launcher/bench/schedule/schedule_bench.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "launcher/bench/common/lengths_csv.hpp"
#include "launcher/report/json_numbers.hpp"

namespace troupe {
namespace {

using Json = nlohmann::ordered_json;

constexpr double ms_per_us = 1e-3;

Result<std::vector<SimulatedRequest>> trace_of(const ScheduleOptions& options) {
  std::vector<SimulatedRequest> trace;
  if (options.workload.empty()) {
    TROUPE_TRY(trace, random_trace(options.trace));
  } else {
    const auto most = static_cast<std::size_t>(options.trace.requests);
    TROUPE_TRY(const auto lengths, read_lengths_csv(options.workload, most));
    for (const RequestLengths& each : lengths) {
      SimulatedRequest& request = trace.emplace_back();
      request.prompt_tokens = each.prompt_tokens;
      request.max_tokens = request.output_tokens = each.max_tokens;
    }
  }
  TROUPE_CHECK(set_targets(options.targets, trace));
  return trace;
}

/// At least three digits: 0.123, 12.3, 1234.
std::string short_number(double value) {
  if (value < 9.9995) return fmt::format("{:.3f}", value);
  return value < 999.95 ? fmt::format("{:.1f}", value) : fmt::format("{:.0f}", value);
}

Json json_of(const ScheduleTotals& totals) {
  return {{"makespan_seconds", totals.makespan_s},
          {"output_tokens_per_second", totals.output_tokens_per_s},
          {"output_tokens", totals.output_tokens},
          {"steps", totals.steps},
          {"computed_tokens", totals.computed_tokens},
          {"queueing_ms", distribution_json(totals.queueing_us, ms_per_us)},
          {"ttft_ms", distribution_json(totals.first_token_us, ms_per_us)},
          {"end_to_end_ms", distribution_json(totals.end_to_end_us, ms_per_us)},
          {"goodput", totals.goodput},
          {"deadline_misses", totals.deadline_misses},
          {"fairness", totals.fairness},
          {"worst_slowdown", totals.worst_slowdown},
          {"prefix_tokens", totals.prefix_tokens},
          {"preemptions", totals.preemptions},
          {"swaps", totals.swaps}};
}

/// A line about swaps, empty if there were none.
std::string swaps_of(const ScheduleComparison& comparison) {
  std::string text;
  for (const ScheduleComparison::Row& row : comparison.rows) {
    if (row.totals.swaps == 0) continue;
    text +=
        fmt::format("{} {} {}", text.empty() ? "\nswaps    " : ",", row.policy, row.totals.swaps);
  }
  return text.empty() ? text : text + "\n";
}

Result<void> write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (file) file << text << std::flush;
  if (!file) return fail_errno(errno, fmt::format("cannot write --json {}", path));
  return {};
}

}  // namespace

Result<ScheduleComparison> compare_policies(const ScheduleOptions& options) {
  TROUPE_TRY(const auto trace, trace_of(options));
  ScheduleComparison comparison;
  comparison.requests = trace.size();
  comparison.last_arrival_s = static_cast<double>(trace.back().arrival_us) * 1e-6;
  for (const SimulatedRequest& request : trace) {
    comparison.prompt_tokens += request.prompt_tokens;
    comparison.output_tokens += request.output_tokens;
  }
  for (const std::string& name : options.policies) {
    SchedulerConfig config = options.scheduler;
    const auto policy = scheduling_policy(name);
    if (!policy) return fail(ErrorCode::invalid_argument, "there is no policy {}", name);
    config.policy = *policy;
    TROUPE_TRY(const auto outcome, simulate_schedule(config, options.cost, trace));
    comparison.rows.push_back({name, totals_of(trace, outcome)});
  }
  return comparison;
}

std::string table_of(const ScheduleComparison& comparison) {
  std::string text = fmt::format(
      "bench schedule (simulated)\n"
      "requests  {} over {} s\n"
      "tokens    {} of prompts, {} of answers\n\n"
      "{:8} {:>6} {:>6} {:^13} {:^13} {:>4} {:>4} {:>4} {:>5} {:>6}\n"
      "{:8} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>4} {:>4} {:>4} {:>5} {:>6}\n",
      comparison.requests, short_number(comparison.last_arrival_s), comparison.prompt_tokens,
      comparison.output_tokens, "", "all", "tokens", "TTFT, s", "end to end, s", "good", "", "fair",
      "pre-", "from", "policy", "in s", "/s", "mean", "p99", "mean", "p99", "%", "late", "ness",
      "empt", "cache");
  for (const ScheduleComparison::Row& row : comparison.rows) {
    const ScheduleTotals& totals = row.totals;
    const auto seconds = [](double us) { return short_number(us * 1e-6); };
    text += fmt::format(
        "{:8} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>4.0f} {:>4} {:>4.2f} {:>5} {:>6}\n",
        row.policy, short_number(totals.makespan_s), short_number(totals.output_tokens_per_s),
        seconds(totals.first_token_us.mean), seconds(totals.first_token_us.p99),
        seconds(totals.end_to_end_us.mean), seconds(totals.end_to_end_us.p99),
        100.0 * totals.goodput, totals.deadline_misses, totals.fairness, totals.preemptions,
        totals.prefix_tokens);
  }
  return text + swaps_of(comparison);
}

std::string json_of(const ScheduleOptions& options, const ScheduleComparison& comparison) {
  const SchedulerConfig& scheduler = options.scheduler;
  Json json;
  json["bench"] = "schedule";
  json["trace"] = {{"workload", options.workload.empty() ? Json() : Json(options.workload)},
                   {"seed", options.trace.seed},
                   {"requests", comparison.requests},
                   {"last_arrival_seconds", comparison.last_arrival_s},
                   {"prompt_tokens", comparison.prompt_tokens},
                   {"output_tokens", comparison.output_tokens}};
  json["scheduler"] = {{"max_num_seqs", scheduler.max_num_seqs},
                       {"max_num_batched_tokens", scheduler.max_num_batched_tokens},
                       {"max_model_len", scheduler.max_model_len},
                       {"block_size", scheduler.block_size},
                       {"kv_cache_blocks", scheduler.kv_cache_blocks},
                       {"swap_blocks", scheduler.swap_blocks},
                       {"max_steps_in_flight", scheduler.max_steps_in_flight},
                       {"micro_batches", scheduler.micro_batches},
                       {"chunked_prefill", scheduler.chunked_prefill},
                       {"prefix_caching", scheduler.prefix_caching}};
  json["cost"] = {{"us_per_step", options.cost.us_per_step},
                  {"us_per_token", options.cost.us_per_token},
                  {"us_per_kv_token", options.cost.us_per_kv_token},
                  {"us_per_plan", options.cost.us_per_plan},
                  {"stages", options.cost.stages}};
  Json& policies = json["policies"] = Json::array();
  for (const ScheduleComparison::Row& row : comparison.rows) {
    Json& policy = policies.emplace_back(Json{{"policy", row.policy}});
    policy.update(json_of(row.totals));
  }
  // Paths may hold invalid UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

ExitCode run_schedule_bench(const ScheduleOptions& options) {
  const auto refuse = [](const Error& error) {
    std::fprintf(stderr, "launcher: %s\n", error.message.c_str());
    return ExitCode::refused;
  };
  const auto comparison = compare_policies(options);
  if (!comparison.ok()) return refuse(comparison.error());
  std::fputs(table_of(*comparison).c_str(), stdout);
  if (options.json_path.empty()) return ExitCode::all_answered;
  const auto written = write_file(options.json_path, json_of(options, *comparison));
  return written.ok() ? ExitCode::all_answered : refuse(written.error());
}

}  // namespace troupe
