#include "launcher/job/job_reporter.hpp"

#include <algorithm>
#include <utility>

#include <unistd.h>

#include "launcher/cli/version.hpp"
#include "launcher/report/job_figures.hpp"
#include "launcher/report/write_reports.hpp"
#include "runtime/base/log.hpp"

namespace troupe {
namespace {

constexpr auto ask_interval = std::chrono::seconds(1);
constexpr auto collect_limit = std::chrono::seconds(1);
constexpr auto save_interval = std::chrono::seconds(10);

std::string figures_file(const std::string& folder) { return folder + "/figures.bin"; }

std::int64_t now_us() { return monotonic_ns() / 1000; }

std::string version() { return std::string(program_version()); }

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

JobFacts facts_of(const JobPlan& plan) {
  const Config& config = plan.config;
  JobFacts facts;
  facts.name = config.name;
  facts.version = version();
  facts.host = host_name();
  facts.cores = plan.cores;
  facts.input = config.job.input;
  facts.output = config.job.output;
  facts.model_path = config.model.path;
  facts.architecture = plan.model.architecture;
  facts.kv_policy = describe(plan.engine.kv_policy);
  if (!plan.kv_codes.empty()) facts.kv_policy += ", in " + plan.kv_codes;
  facts.dtype = to_string(plan.engine.dtype);
  facts.quantization = config.model.quantization;
  facts.kv_dtype = to_string(plan.engine.kv_dtype());
  facts.fallback = config.precision.fallback;
  facts.config_yaml = to_yaml(config);
  facts.began_unix_s = std::chrono::duration_cast<std::chrono::seconds>(
                           std::chrono::system_clock::now().time_since_epoch())
                           .count();
  facts.experts_per_token = plan.model.moe ? plan.model.moe->top_k : 0;
  facts.objectives = {config.slo.ttft_ms, config.slo.itl_ms, config.slo.e2e_ms};
  return facts;
}

}  // namespace

JobOutcome outcome_of(ExitCode code) {
  switch (code) {
    case ExitCode::all_answered:
      return JobOutcome::answered;
    case ExitCode::finished_with_errors:
      return JobOutcome::answered_with_errors;
    case ExitCode::drained:
      return JobOutcome::drained;
    case ExitCode::interrupted:
      return JobOutcome::interrupted;
    case ExitCode::refused:
    case ExitCode::failed:
      break;
  }
  return JobOutcome::failed;
}

JobReporter::JobReporter(const JobPlan& plan) : recorder_(facts_of(plan), now_us()) {}

void JobReporter::go_on(const std::string& folder, const JobIdentity& job, std::uint64_t lines,
                        std::uint64_t errors) {
  auto figures = read_figures(figures_file(folder), version(), job);
  recorder_.go_on(lines, errors, figures ? *std::move(figures) : JobFigures());
}

void JobReporter::save_if_due(const std::string& folder, const JobIdentity& job,
                              Clock::time_point now) {
  if (now < next_save_) return;
  next_save_ = now + save_interval;
  const auto saved =
      write_figures(figures_file(folder), version(), job, recorder_.figures(now_us()));
  if (!saved.ok()) log::warning("{}", saved.error().message);
}

void JobReporter::engine_ready() {
  ready_ = true;
  recorder_.engine_ready(now_us());
}

double JobReporter::note_input_wait(bool waits) {
  recorder_.wait_for_input(waits, now_us());
  return recorder_.input_wait_seconds();
}

void JobReporter::ask_if_due(EngineSession& session, Clock::time_point now) {
  if (now < next_ask_) return;
  next_ask_ = now + ask_interval;
  (void)session.engine().ask_telemetry(false);
}

bool JobReporter::take(std::vector<Mailbox::Telemetry> telemetry) {
  for (auto& answer : telemetry) {
    // Supervision reports lost processes.
    if (answer.told.ok()) recorder_.take(*std::move(answer.told));
  }
  return !telemetry.empty();
}

void JobReporter::take(const EngineReport& report, ProgressState& state) {
  recorder_.take(report);
  const EngineStats& stats = report.stats;
  state.running = stats.running;
  state.waiting = stats.waiting;
  state.prompt_tokens = stats.scheduler.prompt_tokens;
  state.prefix_tokens = stats.scheduler.prefix_tokens;
  state.preemptions = stats.scheduler.preemptions;
  state.max_preemptions = stats.scheduler.max_preemptions;
  state.swaps = stats.scheduler.swaps;
  state.drafts = stats.scheduler.drafts;
  state.accepted_drafts = stats.scheduler.accepted_drafts;
  state.output_tokens = stats.output_tokens;
  for (const Completion& completion : report.completions) {
    for (const Choice& choice : completion.choices) {
      state.finished_tokens += choice.token_ids.size();
    }
  }
  state.kv_use = stats.kv_use;
  state.outside_model = recorder_.share_outside_model();
}

void JobReporter::collect(EngineSession& session) {
  // A driver that is still loading does not answer.
  if (!ready_) return;
  const auto until = Clock::now() + collect_limit;
  const auto asked = session.engine().ask_telemetry(true).get(collect_limit);
  if (!asked.ok()) return;
  for (std::int32_t told = 0; told < *asked && Clock::now() < until;) {
    auto content =
        session.take(std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()));
    // Ignore answers to an earlier request, which may still come.
    told += static_cast<std::int32_t>(
        std::ranges::count(content.telemetry, true, &Mailbox::Telemetry::all));
    take(std::move(content.telemetry));
  }
}

Result<void> JobReporter::write(ExitCode code, std::string reason, ErrorTally errors,
                                const std::string& folder, const JobIdentity& job) {
  recorder_.set_errors(std::move(errors));
  recorder_.finish(outcome_of(code), std::move(reason), now_us());
  TROUPE_CHECK(write_figures(figures_file(folder), version(), job, recorder_.figures(now_us())));
  return write_reports(recorder_, folder);
}

}  // namespace troupe
