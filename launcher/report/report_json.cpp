#include "launcher/report/report_json.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "actors/api/losses.hpp"
#include "launcher/report/json_numbers.hpp"
#include "launcher/report/precision_json.hpp"

namespace troupe {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t max_points = 2000;

double ratio(double amount, double of) { return of > 0 ? rounded(amount / of) : 0; }

std::string utc(std::int64_t unix_s) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(unix_s)));
}

double working_seconds(const JobFigures& figures) {
  return figures.serving_seconds - figures.input_wait_seconds;
}

ordered_json job_json(const JobRecorder& job, const JobFigures& figures) {
  const JobFacts& facts = job.facts();
  return {{"name", facts.name},
          {"outcome", to_string(job.outcome())},
          {"reason", job.reason().empty() ? ordered_json() : ordered_json(job.reason())},
          {"began", utc(figures.runs.front().began_unix_s)},
          {"seconds", rounded(figures.seconds)},
          {"serving_seconds", rounded(figures.serving_seconds)},
          {"input_wait_seconds", rounded(figures.input_wait_seconds)},
          {"input", facts.input},
          {"output", facts.output},
          {"model", facts.model_path},
          {"architecture", facts.architecture},
          {"kv_policy", facts.kv_policy},
          {"host", facts.host},
          {"cores", facts.cores},
          {"version", facts.version},
          {"config", facts.config_yaml}};
}

ordered_json requests_json(const JobRecorder& job) {
  return {{"answered", job.answers()},
          {"errors", job.errors().count},
          {"not_begun", job.dropped()},
          {"answered_before", job.lines_before()}};
}

ordered_json recoveries_json(const JobRecorder& job) {
  ordered_json all = ordered_json::array();
  for (const auto& [recovery, answers] : job.recoveries()) {
    ordered_json lost = ordered_json::array();
    const ActorDown& cause = cause_of(recovery.lost);
    for (const ActorDown& down : recovery.lost) {
      lost.push_back({{"process", down.name},
                      {"node", down.node},
                      {"pid", down.pid},
                      {"devices", down.devices},
                      {"cause", to_string(down.cause)},
                      {"code", down.code},
                      {"is_consequence", &down != &cause && is_consequence(down, cause)},
                      {"message", down.message},
                      {"log", down.log_path},
                      {"log_lines", down.log_lines}});
    }
    all.push_back({{"lost", std::move(lost)},
                   {"seconds", rounded(recovery.seconds.value_or(0))},
                   {"sequences", recovery.sequences},
                   {"kv_tokens", recovery.lost_work.kv_tokens},
                   {"in_flight_tokens", recovery.lost_work.in_flight_tokens},
                   {"unsaved_tokens", recovery.unsaved_tokens},
                   {"answered", answers},
                   {"hang", recovery.hang}});
  }
  return {{"count", job.recovery_count()},
          {"suspects", job.suspects()},
          {"given_up_prompts", job.given_up_prompts()},
          {"events", std::move(all)}};
}

const char* name_of(EngineDomainChange::Kind kind) {
  switch (kind) {
    case EngineDomainChange::Kind::dropped:
      return "dropped";
    case EngineDomainChange::Kind::back:
      return "back";
    case EngineDomainChange::Kind::awaited:
      return "awaited";
    case EngineDomainChange::Kind::answered:
      return "answered";
  }
  return "";
}

ordered_json domain_changes_json(const JobRecorder& job) {
  ordered_json all = ordered_json::array();
  for (const auto& [change, answers] : job.domain_changes()) {
    all.push_back({{"domain", change.domain},
                   {"change", name_of(change.kind)},
                   {"nodes", change.nodes},
                   {"why", change.why},
                   {"requests", change.requests},
                   {"serving", change.serving},
                   {"domains", change.all},
                   {"seconds", rounded(change.seconds)},
                   {"answered", answers}});
  }
  return all;
}

ordered_json errors_json(const ErrorTally& errors) {
  ordered_json first;
  if (errors.first) {
    first = {{"line", errors.first->line},
             {"code", errors.first->code},
             {"message", errors.first->message}};
  }
  return {{"count", errors.count}, {"by_code", errors.by_code}, {"first", std::move(first)}};
}

ordered_json runs_json(const JobFigures& figures) {
  ordered_json runs = ordered_json::array();
  for (const JobFigures::Run& run : figures.runs) {
    runs.push_back({{"began", utc(run.began_unix_s)},
                    {"seconds", rounded(run.seconds)},
                    {"outcome", to_string(run.outcome)},
                    {"answered", run.answers}});
  }
  return runs;
}

ordered_json tokens_json(const JobFigures& figures) {
  const EngineStats& stats = figures.stats;
  const double seconds = working_seconds(figures);
  return {{"prompt", figures.prompt_tokens},
          {"output", figures.answer_tokens},
          {"computed_prompt", stats.scheduler.prompt_tokens},
          {"recomputed_prompt", stats.scheduler.recomputed_tokens},
          {"prefix_hits", stats.scheduler.prefix_tokens},
          {"shared_reads", stats.shared_positions},
          {"generated", stats.output_tokens},
          {"generated_per_second", ratio(static_cast<double>(stats.output_tokens), seconds)},
          {"computed_prompt_per_second",
           ratio(static_cast<double>(stats.scheduler.prompt_tokens), seconds)},
          {"drafts", stats.scheduler.drafts},
          {"accepted_drafts", stats.scheduler.accepted_drafts}};
}

ordered_json steps_json(const JobFigures& figures) {
  const EngineStats& stats = figures.stats;
  const auto outside = share_outside_model(stats);
  const auto count = static_cast<double>(stats.steps);
  return {{"count", stats.steps},
          {"mean_ms", ratio(static_cast<double>(stats.step_us) / 1000, count)},
          {"mean_model_ms", ratio(static_cast<double>(stats.model_us) / 1000, count)},
          {"active_seconds", rounded(static_cast<double>(stats.active_us) * 1e-6)},
          {"model_seconds", rounded(static_cast<double>(stats.model_us) * 1e-6)},
          {"share_outside_model", outside ? ordered_json(rounded(*outside)) : ordered_json()},
          {"preemptions", stats.scheduler.preemptions},
          {"max_preemptions_of_one", stats.scheduler.max_preemptions},
          {"swaps", stats.scheduler.swaps},
          {"peak_kv_use", rounded(figures.steps.peak_kv_use())}};
}

ordered_json latency_json(const JobFigures& figures) {
  return {{"ttft", distribution_json(figures.ttft_us)},
          {"itl", distribution_json(figures.inter_token_us)},
          {"e2e", distribution_json(figures.e2e_us)}};
}

ordered_json goodput_json(const ServiceObjectives& objectives, const JobFigures& figures) {
  if (!objectives.any()) return nullptr;
  const auto limit = [](const std::optional<double>& ms) {
    return ms ? ordered_json(*ms) : ordered_json();
  };
  const auto good = static_cast<double>(figures.good_answers);
  return {{"ttft_ms", limit(objectives.ttft_ms)},
          {"itl_ms", limit(objectives.itl_ms)},
          {"e2e_ms", limit(objectives.e2e_ms)},
          {"good_answers", figures.good_answers},
          {"share", ratio(good, static_cast<double>(figures.e2e_us.count()))},
          {"answers_per_second", ratio(good, working_seconds(figures))}};
}

ordered_json over_time_json(const StepSeries& steps) {
  const auto points = steps.points(max_points);
  ordered_json columns;
  columns["interval_seconds"] = points.empty() ? 0 : rounded(points.front().width);
  for (const auto* name :
       {"seconds", "steps", "output_tokens_per_second", "computed_prompt_tokens_per_second",
        "prefix_hits_per_second", "running", "waiting", "kv_use", "max_kv_use"}) {
    columns[name] = ordered_json::array();
  }
  for (const auto& point : points) {
    const auto per_second = [&](std::uint64_t tokens) {
      return ratio(static_cast<double>(tokens), point.width);
    };
    columns["seconds"].push_back(rounded(point.seconds));
    columns["steps"].push_back(point.steps);
    columns["output_tokens_per_second"].push_back(per_second(point.output_tokens));
    columns["computed_prompt_tokens_per_second"].push_back(per_second(point.prompt_tokens));
    columns["prefix_hits_per_second"].push_back(per_second(point.prefix_tokens));
    columns["running"].push_back(rounded(point.running));
    columns["waiting"].push_back(rounded(point.waiting));
    columns["kv_use"].push_back(rounded(point.kv_use));
    columns["max_kv_use"].push_back(rounded(point.max_kv_use));
  }
  return columns;
}

ordered_json rounded_or_null(const std::optional<double>& value) {
  return value ? ordered_json(rounded(*value)) : ordered_json(nullptr);
}

ordered_json ranks_json(const std::vector<ProcessTelemetry>& processes) {
  ordered_json ranks = ordered_json::array();
  for (const ProcessTelemetry& process : processes) {
    if (process.role != ProcessRole::worker) continue;
    const RankUse use = use_of(process);
    ranks.push_back({{"rank", process.index},
                     {"process", process.process},
                     {"replica", process.replica},
                     {"stage", process.stage},
                     {"place", process.place},
                     {"computing_seconds", rounded(use.computing)},
                     {"exchange_seconds", rounded_or_null(use.exchanging)},
                     {"stage_seconds", rounded_or_null(use.stages)},
                     {"waiting_seconds", rounded(use.waiting)},
                     {"other_seconds", rounded(use.rest)},
                     {"steps", process.totals.count(SpanKind::step)},
                     {"passes", process.totals.count(SpanKind::forward)},
                     {"rows", process.rows}});
  }
  return ranks;
}

/// The rows of all ranks together as [layers][experts].
ordered_json experts_json(const JobRecorder& job, const std::vector<ProcessTelemetry>& processes) {
  std::int64_t layers = 0, experts = 0;
  for (const ProcessTelemetry& process : processes) {
    const ExpertRows& part = process.expert_rows;
    if (part.rows.empty()) continue;
    layers = std::max(layers, part.first_layer + part.layers);
    experts = std::max(experts, part.first_expert + part.experts);
  }
  if (layers == 0 || experts == 0) return nullptr;
  std::vector<std::vector<std::int64_t>> rows(
      static_cast<std::size_t>(layers),
      std::vector<std::int64_t>(static_cast<std::size_t>(experts)));
  for (const ProcessTelemetry& process : processes) {
    const ExpertRows& part = process.expert_rows;
    for (std::size_t i = 0; i < part.rows.size(); ++i) {
      const auto layer =
          static_cast<std::size_t>(part.first_layer) + i / static_cast<std::size_t>(part.experts);
      const auto expert =
          static_cast<std::size_t>(part.first_expert) + i % static_cast<std::size_t>(part.experts);
      rows[layer][expert] += part.rows[i];
    }
  }
  return {{"experts_per_token", job.facts().experts_per_token}, {"rows", rows}};
}

/// What the processes of the last run told, where others were before it.
ordered_json last_run_only_json(const JobFigures& figures) {
  if (figures.runs.size() < 2) return ordered_json::array();
  return {"recoveries", "domain_changes", "precision", "ranks",     "hosts",
          "links",      "experts",        "processes", "trace.json"};
}

ordered_json process_times_json(const std::vector<ProcessTelemetry>& processes) {
  ordered_json all = ordered_json::array();
  for (const ProcessTelemetry& process : processes) {
    ordered_json spans = ordered_json::object();
    for (std::size_t i = 0; i < span_kinds; ++i) {
      const auto kind = static_cast<SpanKind>(i);
      if (process.totals.count(kind) == 0) continue;
      spans[std::string(name(kind))] = {{"count", process.totals.count(kind)},
                                        {"seconds", rounded(process.totals.seconds(kind))}};
    }
    all.push_back({{"process", process.process}, {"spans", std::move(spans)}});
  }
  return all;
}

}  // namespace

std::string_view to_string(JobOutcome outcome) {
  switch (outcome) {
    case JobOutcome::answered:
      return "finished";
    case JobOutcome::answered_with_errors:
      return "finished with error lines";
    case JobOutcome::failed:
      return "failed";
    case JobOutcome::drained:
      return "drained";
    case JobOutcome::interrupted:
      return "interrupted";
  }
  return "failed";
}

ordered_json report_json(const JobRecorder& job) {
  const auto processes = job.processes();
  const JobFigures figures = job.figures(job.began_us());
  return {{"format", report_format},
          {"job", job_json(job, figures)},
          {"runs", runs_json(figures)},
          {"requests", requests_json(job)},
          {"errors", errors_json(job.errors())},
          {"recoveries", recoveries_json(job)},
          {"domain_changes", domain_changes_json(job)},
          {"tokens", tokens_json(figures)},
          {"steps", steps_json(figures)},
          {"latency_ms", latency_json(figures)},
          {"precision", precision_json(job, processes)},
          {"goodput", goodput_json(job.facts().objectives, figures)},
          {"over_time", over_time_json(figures.steps)},
          {"last_run_only", last_run_only_json(figures)},
          {"ranks", ranks_json(processes)},
          {"hosts", hosts_json(job.hosts(), processes)},
          {"links", links_json(job.hosts(), processes)},
          {"experts", experts_json(job, processes)},
          {"processes", process_times_json(processes)}};
}

std::string to_text(const ordered_json& report) {
  return report.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace troupe
