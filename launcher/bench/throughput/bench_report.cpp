#include "launcher/bench/throughput/bench_report.hpp"

#include <fmt/format.h>

#include "launcher/report/json_numbers.hpp"
#include "runtime/base/terminal_text.hpp"

namespace troupe {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t columns = 79;

/// `bytes` on one line; a long one is cut at the front, because the end of a path says most.
std::string fitted(const std::string& label, const std::string& bytes) {
  const std::size_t room = columns - label.size();
  const std::string text = printable(bytes);
  if (width_of(text) <= room) return label + text + "\n";
  return label + "..." + std::string(end_of(text, room - 3)) + "\n";
}

std::string_view dtype_name(const JobPlan& plan) {
  return plan.engine.dtype == DType::bf16 ? "bfloat16" : "float32";
}

std::string_view load_format_name(const JobPlan& plan) {
  return plan.engine.load_format == LoadFormat::dummy ? "dummy" : "safetensors";
}

std::string arrangement(const EngineSpec& engine) {
  const std::string context = engine.context_parallel_size > 1
                                  ? fmt::format(" cp{}", engine.context_parallel_size)
                                  : std::string();
  return fmt::format("dp{} pp{}{} tp{} ep{}{}{}", engine.data_parallel_size,
                     engine.pipeline_parallel_size, context, engine.tensor_parallel_size,
                     engine.expert_parallel_size, engine.sequence_parallel ? " sp" : "",
                     engine.data_parallel_attention ? " dpa" : "");
}

std::string failures(std::int64_t failed) {
  return failed > 0 ? fmt::format("{} requests failed\n", failed) : "";
}

std::string distribution_row(std::string_view name, const Distribution& of) {
  return fmt::format("{:<26}{:>12.3f}{:>12.3f}{:>12.3f}{:>12.3f}\n", name, of.mean, of.p50, of.p95,
                     of.p99);
}

Distribution of_starts(std::span<const StartupFigures> starts, double StartupFigures::* member) {
  std::vector<double> values;
  for (const StartupFigures& start : starts) values.push_back(start.*member);
  return distribution_of(std::move(values));
}

}  // namespace

std::string bench_heading(const BenchSubject& subject, const JobPlan& plan) {
  const EngineSpec& engine = plan.engine;
  return fmt::format("bench {}\n", subject.kind) + fitted("model     ", engine.model_path) +
         fitted("weights   ", fmt::format("{}, {}", load_format_name(plan), dtype_name(plan))) +
         fitted("workers   ", fmt::format("{} ({}), {} threads each", plan.mesh.world_size(),
                                          arrangement(engine), engine.threads_per_worker)) +
         fitted("requests  ", fmt::format("{}: {}", subject.requests, subject.workload)) + "\n";
}

std::string to_table(const ThroughputFigures& figures) {
  const auto row = [&](std::string_view name, std::int64_t count) {
    return fmt::format("{:<26}{:>12}{:>16.2f}\n", name, count, figures.per_second(count));
  };
  std::string table = fmt::format("{:<26}{:>12}{:>16}\n", "", "", "per second");
  table += row("requests", figures.requests);
  table += row("input tokens", figures.input_tokens);
  table += row("output tokens", figures.output_tokens);
  table += row("all tokens", figures.input_tokens + figures.output_tokens);
  table += fmt::format("{:<26}{:>12.3f}\n", "seconds", figures.seconds);
  table += fmt::format("{:<26}{:>12}\n", "steps", figures.steps);
  if (figures.preemptions > 0) {
    table += fmt::format("{:<26}{:>12}\n", "preemptions", figures.preemptions);
  }
  if (figures.swaps > 0) table += fmt::format("{:<26}{:>12}\n", "swaps", figures.swaps);
  return table + failures(figures.failed);
}

std::string to_table(const LatencyFigures& figures) {
  std::string table =
      fmt::format("{:<26}{:>12}{:>12}{:>12}{:>12}\n", "ms", "mean", "P50", "P95", "P99");
  table += distribution_row("first token (TTFT)", figures.first_token_ms);
  table += distribution_row("between tokens (TPOT)", figures.per_token_ms);
  table += distribution_row("whole request", figures.whole_ms);
  return table + failures(figures.failed);
}

std::string to_table(std::span<const StartupFigures> starts) {
  std::string table = fmt::format("{:<26}{:>12}{:>16}\n", "seconds", "ready", "first token");
  for (std::size_t i = 0; i < starts.size(); ++i) {
    table += fmt::format("{:<26}{:>12.3f}{:>16.3f}\n", fmt::format("start {}", i + 1),
                         starts[i].ready, starts[i].first_token);
  }
  return table + fmt::format("{:<26}{:>12.3f}{:>16.3f}\n", "mean",
                             of_starts(starts, &StartupFigures::ready).mean,
                             of_starts(starts, &StartupFigures::first_token).mean);
}

ordered_json bench_subject_json(const BenchSubject& subject, const JobPlan& plan) {
  const EngineSpec& engine = plan.engine;
  ordered_json json;
  json["bench"] = subject.kind;
  json["model"] = engine.model_path;
  json["load_format"] = load_format_name(plan);
  json["dtype"] = dtype_name(plan);
  json["workload"] = subject.workload;
  json["requests"] = subject.requests;
  json["parallel"] = {{"data_parallel_size", engine.data_parallel_size},
                      {"pipeline_parallel_size", engine.pipeline_parallel_size},
                      {"context_parallel_size", engine.context_parallel_size},
                      {"tensor_parallel_size", engine.tensor_parallel_size},
                      {"expert_parallel_size", engine.expert_parallel_size},
                      {"sequence_parallel", engine.sequence_parallel},
                      {"data_parallel_attention", engine.data_parallel_attention},
                      {"collectives", engine.collectives}};
  json["engine"] = {{"max_model_len", engine.max_model_len},
                    {"max_num_seqs", engine.max_num_seqs},
                    {"max_num_batched_tokens", engine.max_num_batched_tokens},
                    {"threads_per_worker", engine.threads_per_worker}};
  return json;
}

ordered_json to_json(const ThroughputFigures& figures) {
  const std::int64_t all = figures.input_tokens + figures.output_tokens;
  return {{"answered", figures.requests},
          {"failed", figures.failed},
          {"seconds", figures.seconds},
          {"input_tokens", figures.input_tokens},
          {"output_tokens", figures.output_tokens},
          {"requests_per_second", figures.per_second(figures.requests)},
          {"input_tokens_per_second", figures.per_second(figures.input_tokens)},
          {"output_tokens_per_second", figures.per_second(figures.output_tokens)},
          {"tokens_per_second", figures.per_second(all)},
          {"steps", figures.steps},
          {"preemptions", figures.preemptions},
          {"swaps", figures.swaps}};
}

ordered_json to_json(const LatencyFigures& figures) {
  return {{"answered", figures.requests},
          {"failed", figures.failed},
          {"ttft_ms", distribution_json(figures.first_token_ms)},
          {"tpot_ms", distribution_json(figures.per_token_ms)},
          {"end_to_end_ms", distribution_json(figures.whole_ms)}};
}

ordered_json to_json(std::span<const StartupFigures> starts) {
  ordered_json json;
  json["starts"] = ordered_json::array();
  for (const StartupFigures& start : starts) {
    json["starts"].push_back(
        {{"ready_seconds", start.ready}, {"first_token_seconds", start.first_token}});
  }
  json["ready_seconds"] = distribution_json(of_starts(starts, &StartupFigures::ready));
  json["first_token_seconds"] = distribution_json(of_starts(starts, &StartupFigures::first_token));
  return json;
}

}  // namespace troupe
