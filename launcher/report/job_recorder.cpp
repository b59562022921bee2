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

void JobRecorder::engine_ready(std::int64_t now_us) {
  ready_us_ = now_us;
  steps_.begin_at(now_us);
}

void JobRecorder::wait_for_input(bool waits, std::int64_t now_us) {
  if (waits_since_us_) waited_us_ += now_us - *waits_since_us_;
  waits_since_us_.reset();
  if (waits) waits_since_us_ = now_us;
}

void JobRecorder::take(const EngineReport& report) {
  for (const StepRecord& step : report.steps) {
    steps_.add(static_cast<std::size_t>(report.domain), step);
  }
  for (const Completion& completion : report.completions) take(completion);
  dropped_ += report.dropped.size();
  stats_ = report.stats;
}

void JobRecorder::take(const Completion& completion) {
  if (completion.failed()) {
    ++failed_requests_;
    return;
  }
  ++answers_;
  prompt_tokens_ += completion.prompt_ids.size();
  for (const Choice& choice : completion.choices) answer_tokens_ += choice.token_ids.size();
  if (completion.last_token_us == 0) return;
  ttft_us_.add(completion.first_token_us);
  e2e_us_.add(completion.last_token_us);
  if (keeps_objectives(completion)) ++good_answers_;
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
  const auto [found, is_new] = processes_.try_emplace(telemetry.process);
  Process& process = found->second;
  if (is_new) {
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
  if (stats_.active_us == 0 || stats_.steps == 0) return std::nullopt;
  const double share =
      1 - static_cast<double>(stats_.model_us) / static_cast<double>(stats_.active_us);
  return std::clamp(share, 0.0, 1.0);
}

double JobRecorder::seconds() const {
  return static_cast<double>(finished_us_ - began_us_) / us_per_second;
}

double JobRecorder::serving_seconds() const {
  return ready_us_ ? static_cast<double>(finished_us_ - *ready_us_) / us_per_second : 0;
}

double JobRecorder::input_wait_seconds() const {
  return static_cast<double>(waited_us_) / us_per_second;
}

DistributionSketch JobRecorder::inter_token_us() const {
  DistributionSketch all;
  for (const auto& [name, process] : processes_) all.add(process.latest.inter_token_us);
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
  own.now_ns = finished_us_ * 1000;
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
  use.computing = std::max(0.0, computing_seconds(worker.totals));
  use.exchanging = worker.totals.seconds(SpanKind::exchange);
  use.stages = worker.totals.seconds(SpanKind::stage);
  use.waiting = worker.totals.seconds(SpanKind::wait_plan);
  const double all = static_cast<double>(worker.now_ns - worker.since_ns) * 1e-9;
  use.rest = std::max(0.0, all - use.computing - use.exchanging - use.stages - use.waiting);
  return use;
}

}  // namespace troupe
