#include "launcher/report/job_recorder.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

constexpr double us_per_second = 1e6;

double computing_seconds(const SpanTotals& totals) {
  return totals.seconds(SpanKind::step) - totals.seconds(SpanKind::exchange) -
         totals.seconds(SpanKind::stage);
}

}  // namespace

void JobRecorder::go_on(std::uint64_t lines, std::uint64_t errors, JobFigures figures) {
  lines_before_ = lines;
  answers_before_ = lines - errors;
  figures_ = std::move(figures);
}

void JobRecorder::engine_ready(std::int64_t now_us) {
  ready_us_ = now_us;
  const auto before = static_cast<std::int64_t>(figures_.serving_seconds * us_per_second);
  figures_.steps.begin_at(now_us - before);
}

void JobRecorder::wait_for_input(bool waits, std::int64_t now_us) {
  if (waits_since_us_) waited_us_ += now_us - *waits_since_us_;
  waits_since_us_.reset();
  if (waits) waits_since_us_ = now_us;
}

void JobRecorder::take(const EngineReport& report) {
  for (const StepRecord& step : report.steps) {
    figures_.steps.add(static_cast<std::size_t>(report.domain), step);
  }
  for (const Completion& completion : report.completions) take(completion);
  for (const WidenedLayer& layer : report.widened) {
    // An executor that has taken over is told again.
    const bool is_known = std::ranges::any_of(widened_, [&](const Widened& known) {
      return known.domain == report.domain && known.layer.layer == layer.layer;
    });
    if (!is_known) widened_.push_back({report.domain, layer});
  }
  dropped_ += report.dropped.size();
  stats_ = report.stats;
}

void JobRecorder::take(const EngineRecovery& recovery) {
  given_up_prompts_.insert(given_up_prompts_.end(), recovery.given_up.begin(),
                           recovery.given_up.end());
  suspects_ += recovery.suspects;
  if (!recovery.seconds) return;
  ++recovery_count_;
  if (recoveries_.size() < max_recoveries) recoveries_.push_back({recovery, answers()});
}

void JobRecorder::take(const EngineDomainChange& change) {
  if (domain_changes_.size() < max_domain_changes) domain_changes_.push_back({change, answers()});
}

void JobRecorder::take(const Completion& completion) {
  if (completion.failed()) return;
  ++answers_;
  figures_.prompt_tokens += completion.prompt_ids.size();
  for (const Choice& choice : completion.choices) {
    figures_.answer_tokens += choice.token_ids.size();
  }
  if (completion.last_token_us == 0) return;
  figures_.ttft_us.add(completion.first_token_us);
  figures_.e2e_us.add(completion.last_token_us);
  if (keeps_objectives(completion)) ++figures_.good_answers;
}

bool JobRecorder::keeps_objectives(const Completion& completion) const {
  const auto keeps = [](const std::optional<double>& max_ms, double us) {
    return !max_ms || us <= *max_ms * 1000;
  };
  std::size_t longest = 1;
  for (const Choice& choice : completion.choices) {
    longest = std::max(longest, choice.token_ids.size());
  }
  const auto first = static_cast<double>(completion.first_token_us);
  const auto last = static_cast<double>(completion.last_token_us);
  const double between = longest > 1 ? (last - first) / static_cast<double>(longest - 1) : 0;
  return keeps(facts_.objectives.ttft_ms, first) && keeps(facts_.objectives.itl_ms, between) &&
         keeps(facts_.objectives.e2e_ms, last);
}

void JobRecorder::take(ProcessTelemetry telemetry) {
  const bool is_worker = telemetry.role == ProcessRole::worker;
  if (is_worker && telemetry.now_ns == 0) return;  // it has not begun to serve
  const auto [found, is_new] = processes_.try_emplace(telemetry.process);
  Process& process = found->second;
  const bool is_restarted = !is_new && telemetry.since_ns > process.latest.now_ns;
  if (is_new || is_restarted) {
    process.totals_before = {};
    process.before_ns = telemetry.since_ns;
    process.latest = std::move(telemetry);
    return;
  }
  process.totals_before = process.latest.totals;
  process.before_ns = process.latest.now_ns;
  if (telemetry.kept.spans.empty()) {
    telemetry.kept = std::move(process.latest.kept);
    telemetry.rows = process.latest.rows;
    telemetry.expert_rows = std::move(process.latest.expert_rows);
    telemetry.inter_token_us = std::move(process.latest.inter_token_us);
    telemetry.traffic = std::move(process.latest.traffic);
    telemetry.kernels = std::move(process.latest.kernels);
  }
  process.latest = std::move(telemetry);
}

void JobRecorder::finish(JobOutcome outcome, std::string reason, std::int64_t now_us) {
  outcome_ = outcome;
  reason_ = std::move(reason);
  finished_us_ = now_us;
  wait_for_input(false, now_us);
}

std::vector<double> JobRecorder::rank_busy() const {
  std::map<std::int32_t, double> by_rank;
  for (const auto& [name, process] : processes_) {
    if (process.latest.role != ProcessRole::worker) continue;
    const double seconds = static_cast<double>(process.latest.now_ns - process.before_ns) * 1e-9;
    const double busy =
        computing_seconds(process.latest.totals) - computing_seconds(process.totals_before);
    by_rank[process.latest.index] = seconds > 0 ? std::clamp(busy / seconds, 0.0, 1.0) : 0;
  }
  std::vector<double> busy;
  for (const auto& [rank, share] : by_rank) {
    if (rank != static_cast<std::int32_t>(busy.size())) return {};
    busy.push_back(share);
  }
  return busy;
}

std::optional<double> JobRecorder::share_outside_model() const {
  return troupe::share_outside_model(stats_);
}

std::optional<double> share_outside_model(const EngineStats& stats) {
  if (stats.active_us == 0 || stats.steps == 0) return std::nullopt;
  const double share =
      1 - static_cast<double>(stats.model_us) / static_cast<double>(stats.active_us);
  return std::clamp(share, 0.0, 1.0);
}

double JobRecorder::input_wait_seconds() const {
  return static_cast<double>(waited_us_) / us_per_second;
}

JobFigures JobRecorder::figures(std::int64_t now_us) const {
  JobFigures all = figures_;
  const std::int64_t end_us = finished_us_.value_or(now_us);
  const double seconds = static_cast<double>(end_us - began_us_) / us_per_second;
  all.runs.push_back({.began_unix_s = facts_.began_unix_s,
                      .seconds = seconds,
                      .answers = answers_,
                      .outcome = outcome_});
  all.seconds += seconds;
  if (ready_us_) all.serving_seconds += static_cast<double>(end_us - *ready_us_) / us_per_second;
  all.input_wait_seconds += input_wait_seconds();
  EngineStats own = stats_;
  own.running = own.waiting = 0;
  own.kv_use = 0;
  all.stats.add(own);
  for (const auto& [name, process] : processes_) {
    all.inter_token_us.add(process.latest.inter_token_us);
  }
  return all;
}

std::vector<ProcessTelemetry> JobRecorder::processes() const {
  std::vector<ProcessTelemetry> processes;
  processes.reserve(processes_.size() + 1);
  for (const auto& [name, process] : processes_) processes.push_back(process.latest);
  ProcessTelemetry own;
  own.process = "launcher";
  own.role = ProcessRole::driver;
  own.since_ns = began_us_ * 1000;
  own.now_ns = finished_us_.value_or(began_us_) * 1000;
  own.totals = spans_.totals();
  own.kept = spans_.spans();
  processes.push_back(std::move(own));
  std::ranges::stable_sort(processes, [](const auto& a, const auto& b) {
    return std::pair(a.role, a.index) < std::pair(b.role, b.index);
  });
  return processes;
}

RankUse use_of(const ProcessTelemetry& worker) {
  RankUse use;
  if (worker.exchanges_on_device) {
    use.computing = worker.totals.seconds(SpanKind::step);
  } else {
    use.computing = std::max(0.0, computing_seconds(worker.totals));
    use.exchanging = worker.totals.seconds(SpanKind::exchange);
    use.stages = worker.totals.seconds(SpanKind::stage);
  }
  use.waiting = worker.totals.seconds(SpanKind::wait_plan);
  const double all = static_cast<double>(worker.now_ns - worker.since_ns) * 1e-9;
  use.rest = std::max(0.0, all - use.computing - use.exchanging.value_or(0.0) -
                               use.stages.value_or(0.0) - use.waiting);
  return use;
}

}  // namespace troupe
