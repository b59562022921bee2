#include "launcher/bench/sweep/sweep_report.hpp"

#include <cmath>

#include <fmt/format.h>

#include "launcher/report/json_numbers.hpp"

namespace troupe {
namespace {

using nlohmann::ordered_json;

/// Three significant digits, so that columns stay narrow for any figure.
std::string figure(double value) {
  if (value >= 99.95) return fmt::format("{:.0f}", value);
  if (value >= 9.995) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

std::string percent(double share) { return fmt::format("{:.1f}%", 100 * share); }

std::string work_table(const SweepFigures& figures) {
  const bool limits = figures.options.has_limits();
  const bool known = figures.ceilings.known();
  std::string table = fmt::format("{:<9}{:>9}{:>11}{:>19}{:>8}{:>8}{}\n",
                                  figures.options.by_rate ? "rate" : "at once", "req/s", "output/s",
                                  "(least to most)", "MFU", "memory",
                                  limits ? fmt::format("{:>15}", "good req/s") : "");
  for (const SweepPoint& point : figures.points) {
    const std::string spread = fmt::format("({} to {})", figure(point.min_output_tokens_per_second),
                                           figure(point.max_output_tokens_per_second));
    const std::string good =
        fmt::format("{} ({:.0f}%)", figure(point.good_requests_per_second), 100 * point.good_share);
    table += fmt::format(
        "{:<9}{:>9}{:>11}{:>19}{:>8}{:>8}{}\n", load_name(figures.options, point.load),
        figure(point.requests_per_second), figure(point.output_tokens_per_second), spread,
        known ? percent(point.operations_share) : "-", known ? percent(point.bytes_share) : "-",
        limits ? fmt::format("{:>15}", good) : "");
  }
  return table;
}

std::string time_table(const SweepFigures& figures) {
  std::string table = fmt::format("{:<9}{:>23}{:>23}{:>23}\n", "ms", "first token (TTFT)",
                                  "between tokens (TPOT)", "whole request");
  table += fmt::format("{:<9}", "");
  for (int i = 0; i < 3; ++i) table += fmt::format("{:>7}{:>8}{:>8}", "P50", "P95", "P99");
  table += "\n";
  for (const SweepPoint& point : figures.points) {
    table += fmt::format("{:<9}", load_name(figures.options, point.load));
    for (const Distribution* of : {&point.first_token_ms, &point.per_token_ms, &point.whole_ms}) {
      table += fmt::format("{:>7}{:>8}{:>8}", figure(of->p50), figure(of->p95), figure(of->p99));
    }
    table += "\n";
  }
  return table;
}

ordered_json limit_json(const std::optional<double>& limit) {
  return limit ? ordered_json(*limit) : ordered_json();
}

}  // namespace

std::string load_name(const SweepOptions& options, double load) {
  if (!options.by_rate) return fmt::format("{:.0f}", load);
  return std::isinf(load) ? "inf" : fmt::format("{:g}/s", load);
}

std::string to_table(const SweepFigures& figures) {
  std::string text;
  if (figures.ceilings.known()) {
    text = fmt::format("ceilings  {} GFLOP/s, {} GB/s, measured on {} thread{}\n\n",
                       figure(figures.ceilings.operations_per_second * 1e-9),
                       figure(figures.ceilings.bytes_per_second * 1e-9), figures.ceiling_threads,
                       figures.ceiling_threads == 1 ? "" : "s");
  }
  text += work_table(figures) + "\n" + time_table(figures);
  std::int64_t failed = 0;
  for (const SweepPoint& point : figures.points) failed += point.failed;
  return failed > 0 ? text + fmt::format("{} requests failed\n", failed) : text;
}

ordered_json to_json(const SweepFigures& figures) {
  const SweepOptions& options = figures.options;
  const bool known = figures.ceilings.known();
  ordered_json json;
  json["loads_are"] = options.by_rate ? "requests_per_second" : "requests_at_once";
  json["runs_of_each"] = figures.runs;
  json["limits"] = {{"ttft_ms", limit_json(options.ttft_ms)},
                    {"tpot_ms", limit_json(options.tpot_ms)},
                    {"end_to_end_ms", limit_json(options.e2e_ms)}};
  json["ceilings"] = {{"threads", figures.ceiling_threads},
                      {"operations_per_second", figures.ceilings.operations_per_second},
                      {"bytes_per_second", figures.ceilings.bytes_per_second}};
  json["points"] = ordered_json::array();
  for (const SweepPoint& point : figures.points) {
    json["points"].push_back(
        {{"load", std::isinf(point.load) ? ordered_json("inf") : ordered_json(point.load)},
         {"runs", point.runs},
         {"answered", point.answered},
         {"failed", point.failed},
         {"seconds", point.seconds},
         {"requests_per_second", point.requests_per_second},
         {"output_tokens_per_second", point.output_tokens_per_second},
         {"min_output_tokens_per_second", point.min_output_tokens_per_second},
         {"max_output_tokens_per_second", point.max_output_tokens_per_second},
         {"tokens_per_second", point.all_tokens_per_second},
         {"good_requests_per_second", point.good_requests_per_second},
         {"good_share", point.good_share},
         {"ttft_ms", distribution_json(point.first_token_ms)},
         {"tpot_ms", distribution_json(point.per_token_ms)},
         {"end_to_end_ms", distribution_json(point.whole_ms)},
         {"mfu", known ? ordered_json(point.operations_share) : ordered_json()},
         {"memory_bandwidth_share", known ? ordered_json(point.bytes_share) : ordered_json()}});
  }
  return json;
}

}  // namespace troupe
