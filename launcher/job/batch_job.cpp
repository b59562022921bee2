#include "launcher/job/batch_job.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

#include "launcher/batch/input/byte_source.hpp"
#include "launcher/job/engine_session.hpp"
#include "launcher/job/engine_start.hpp"
#include "launcher/job/exit_messages.hpp"
#include "launcher/job/job_files.hpp"
#include "launcher/job/job_output.hpp"
#include "launcher/job/job_reporter.hpp"
#include "launcher/job/job_teller.hpp"
#include "launcher/job/mesh_table.hpp"
#include "launcher/job/pending_requests.hpp"
#include "launcher/job/replacement_wait.hpp"
#include "launcher/job/request_feed.hpp"
#include "launcher/job/shown_answers.hpp"
#include "launcher/job/stop_request.hpp"
#include "launcher/metrics/metrics_endpoint.hpp"
#include "launcher/progress/progress_printer.hpp"
#include "launcher/report/report_json.hpp"

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto tick = milliseconds(50);
/// How long to wait before polling an empty pipe again.
constexpr auto input_tick = milliseconds(2);

/// The state of one run. Functions that return an ExitCode end the job with it.
class BatchJob {
 public:
  BatchJob(const JobPlan& plan, const RunOptions& options, StopSignals& signals)
      : plan_(plan),
        config_(plan.config.job),
        options_(options),
        signals_(signals),
        stop_(std::chrono::duration<double>(config_.grace_seconds)),
        progress_(STDERR_FILENO,
                  ProgressPrinter::mode_for(STDERR_FILENO, options.quiet, options.json_progress,
                                            std::getenv("TERM"))),
        reporter_(plan),
        shown_(static_cast<std::size_t>(options.show_answers)),
        pending_(request_window(plan.engine)) {}

  /// Runs the job, and reports the outcome to programs.
  ExitCode run();

 private:
  using Input = RequestFeed::State;

  ExitCode run_to_its_end();
  Result<void> open_files();
  ExitCode answer_the_rest();
  Result<bool> needs_engine();
  ExitCode write_refusals();
  std::optional<ExitCode> start_engine();
  void note(const EngineRecovery& recovery);
  void note(const EngineWait& wait);
  void note(const EngineDomainChange& change);
  ExitCode serve();
  std::optional<ExitCode> handle_signals();
  StopRequest::Wish wish() { return stop_.wish(signals_.count(), Clock::now()); }
  bool may_wait();
  Result<void> read_ahead();
  Result<void> check_failures() const;
  Result<void> tend_output();
  Result<void> take_report(EngineReport report);
  Result<void> write_answers(std::vector<Completion>& completions);
  void count_lines();
  void update_progress();
  ExitCode stopped(std::string_view what, ExitCode code);
  ExitCode failed(const Error& error);
  ExitCode actor_down(std::vector<ActorDown> downs);
  void write_reports(ExitCode code);
  ExitCode finished();
  JobStanding standing() const;

  const JobPlan& plan_;
  const Config::Job& config_;
  const RunOptions& options_;
  StopSignals& signals_;
  StopRequest stop_;
  ProgressPrinter progress_;
  JobTeller teller_{progress_, options_};
  ProgressState state_;
  const Clock::time_point began_ = Clock::now();

  JobReporter reporter_;
  ReplacementWait replacement_wait_{plan_.config};
  std::string failure_;
  std::optional<JobFiles> files_;
  std::optional<JobOutput> output_;
  std::unique_ptr<MetricsEndpoint> metrics_;  // null: not requested
  std::unique_ptr<EngineSession> session_;

  ShownAnswers shown_;
  PendingRequests pending_;
  std::optional<RequestFeed> feed_;
  bool draining_ = false;
  bool first_token_seen_ = false;  // replicas each report theirs
  std::uint64_t dropped_ = 0;
};

JobStanding BatchJob::standing() const {
  return {.done = state_.done,
          .before = files_->journal.lines_before(),
          .total = state_.total,
          .output = config_.output,
          .folder = files_->folder,
          .mode = journal_options(plan_.config, options_).mode,
          .resumable = files_->resumable,
          .too_many_failures = !check_failures().ok()};
}

bool BatchJob::may_wait() {
  update_progress();
  const StopRequest::Wish wished = wish();
  // Before the first request there is nothing to finish.
  return wished == StopRequest::Wish::none ||
         (wished == StopRequest::Wish::drain && files_ && files_->journal.has_begun());
}

Result<void> BatchJob::open_files() {
  state_.phase = "reading " + config_.input;
  TROUPE_TRY(files_, JobFiles::open(plan_, options_, [this] { return may_wait(); }));
  TROUPE_TRY(metrics_,
             MetricsEndpoint::open(plan_.config, plan_.engine.max_model_len, files_->folder));
  const std::int32_t domains = plan_.mesh.step_domains();
  if (metrics_) metrics_->metrics().set_domains(domains, domains);
  state_.phase.clear();
  const Journal& journal = files_->journal;
  state_.total = files_->total;
  output_.emplace(files_->journal, config_.ordered,
                  OutputWait(config_.output, config_.disk_full_wait_seconds));
  feed_.emplace(files_->input, RequestFeed::Sinks{
                                   .output = *output_,
                                   .pending = pending_,
                                   .spans = reporter_.recorder().spans(),
                                   .submit = [this](std::vector<Request> requests) -> Result<void> {
                                     return session_->engine().submit(std::move(requests));
                                   },
                                   .on_refused =
                                       [this](const LineError& error) {
                                         if (metrics_)
                                           metrics_->metrics().count_line_error(error.code);
                                       },
                               });
  state_.before = journal.lines_before();
  count_lines();
  if (journal.lines_before() + journal.retried() > 0) {
    reporter_.go_on(files_->folder, journal.identity(), journal.lines_before(),
                    journal.errors_before().count);
  }
  teller_.tell_journal(journal, state_.done, state_.total);
  return {};
}

ExitCode BatchJob::run() {
  const ExitCode code = run_to_its_end();
  signals_.on_pause({}, {});
  state_.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  progress_.end(state_, to_string(outcome_of(code)));
  return code;
}

ExitCode BatchJob::run_to_its_end() {
  if (const auto opened = open_files(); !opened.ok()) {
    progress_.tell("launcher: " + opened.error().message);
    const bool stopped = opened.error().code == ErrorCode::cancelled;
    return stopped ? ExitCode::drained : ExitCode::refused;
  }
  teller_.tell_plan(plan_);
  ExitCode code = ExitCode::all_answered;
  if (!files_->nothing_left()) {
    code = answer_the_rest();
  } else if (const auto begun = files_->journal.begin(); !begun.ok()) {
    code = failed(begun.error());
  }
  if (session_ && code != ExitCode::interrupted) reporter_.collect(*session_);
  // Shut down before the last message, so that its reader finds no process of the job.
  if (session_) session_->shutdown();
  // No report if there was nothing to do.
  if (session_ || output_->written() > 0) write_reports(code);
  if (code == ExitCode::all_answered) return finished();
  teller_.tell_errors(output_->errors());
  return code;
}

ExitCode BatchJob::answer_the_rest() {
  if (const auto few = check_failures(); !few.ok()) return failed(few.error());
  const auto needed = needs_engine();
  if (!needed.ok()) return failed(needed.error());
  if (!*needed) return write_refusals();
  if (const auto ended = start_engine()) return *ended;
  // Only once the model is loaded: a start that fails creates no empty output, and keeps an old
  // one.
  if (const auto begun = files_->journal.begin(); !begun.ok()) return failed(begun.error());
  return serve();
}

Result<bool> BatchJob::needs_engine() {
  state_.phase = "reading " + config_.input;
  auto needed = files_->input.has_request([this] {
    update_progress();
    return signals_.count() == 0;
  });
  state_.phase.clear();
  return needed;
}

/// No line is for the engine: writes the error lines only.
ExitCode BatchJob::write_refusals() {
  if (const auto begun = files_->journal.begin(); !begun.ok()) return failed(begun.error());
  while (true) {
    if (const auto read = read_ahead(); !read.ok()) return failed(read.error());
    if (const auto tended = tend_output(); !tended.ok()) return failed(tended.error());
    if (const auto few = check_failures(); !few.ok()) return failed(few.error());
    update_progress();
    if (feed_->state() == Input::ended) {
      const auto finished = output_->finish();
      if (!finished.ok()) return failed(finished.error());
      if (*finished) break;
    }
    if (!output_->waits_for_room()) continue;
    if (signals_.count() > 0) return stopped("no request was begun", ExitCode::drained);
    std::this_thread::sleep_for(tick);
  }
  return feed_->broken() ? failed(*feed_->broken()) : ExitCode::all_answered;
}

std::optional<ExitCode> BatchJob::start_engine() {
  EngineStart start(plan_, *files_, options_, signals_,
                    {.progress = progress_,
                     .state = state_,
                     .teller = teller_,
                     .recorder = reporter_.recorder(),
                     .keep_going = [this] {
                       update_progress();
                       return signals_.count() == 0;
                     }});
  auto session = start.begin();
  if (!session.ok()) return failed(session.error());
  session_ = *std::move(session);
  replacement_wait_.set_join_command(start.join_command());
  signals_.on_pause([this] { session_->suspend(); }, [this] { session_->resume(); });
  const auto ready = start.finish(*session_);
  if (!ready.ok() && ready.error().code == ErrorCode::cancelled && signals_.count() > 0) {
    return stopped("the model was not loaded yet",
                   signals_.count() > 1 ? ExitCode::interrupted : ExitCode::drained);
  }
  if (!ready.ok()) return failed(ready.error());
  for (const EngineDomainChange& change : session_->take_domain_changes()) note(change);
  reporter_.engine_ready();
  return std::nullopt;
}

void BatchJob::note(const EngineRecovery& recovery) {
  teller_.tell_recovery(recovery);
  reporter_.recorder().take(recovery);
  if (metrics_) metrics_->metrics().count_recovery(recovery);
}

void BatchJob::note(const EngineWait& wait) {
  for (const auto& message : replacement_wait_.take(wait, Clock::now())) teller_.tell_wait(message);
}

void BatchJob::note(const EngineDomainChange& change) {
  for (const auto& message : replacement_wait_.take(change)) teller_.tell_wait(message);
  pending_.set_most(request_window(plan_.engine, change.serving, change.all));
  reporter_.recorder().take(change);
  if (metrics_) metrics_->metrics().set_domains(change.serving, change.all);
}

ExitCode BatchJob::serve() {
  while (true) {
    if (const auto ended = handle_signals()) return *ended;
    if (!draining_) {
      if (const auto read = read_ahead(); !read.ok()) return failed(read.error());
    }
    if (pending_.empty() && (feed_->state() == Input::ended || draining_)) {
      const auto finished = output_->finish();
      if (!finished.ok()) return failed(finished.error());
      if (*finished || draining_) break;
    }
    auto wait = tick;
    if (!draining_ && feed_->state() == Input::silent) wait = input_tick;
    if (!draining_ && feed_->state() == Input::flows) wait = milliseconds(0);
    reporter_.ask_if_due(*session_, Clock::now());
    reporter_.save_if_due(files_->folder, files_->journal.identity(), Clock::now());
    state_.input_wait_seconds =
        reporter_.note_input_wait(pending_.empty() && feed_->state() == Input::silent);
    Mailbox::Content content = session_->take(wait);
    if (reporter_.take(std::move(content.telemetry))) {
      state_.rank_busy = reporter_.recorder().rank_busy();
    }
    for (EngineReport& report : content.reports) {
      const auto taken = take_report(std::move(report));
      if (!taken.ok()) return failed(taken.error());
    }
    for (const EngineRecovery& recovery : content.recoveries) note(recovery);
    for (const EngineDomainChange& change : content.domain_changes) note(change);
    for (const EngineWait& wait : content.waits) note(wait);
    // After the answers that came before the end.
    if (!content.downs.empty()) return actor_down(std::move(content.downs));
    if (const auto tended = tend_output(); !tended.ok()) return failed(tended.error());
    if (const auto few = check_failures(); !few.ok()) return failed(few.error());
    update_progress();
  }
  const bool is_broken = feed_->broken() && !output_->waits_for_room();
  if (is_broken) return failed(*feed_->broken());
  const bool is_all = feed_->state() == Input::ended && dropped_ == 0;
  if (!output_->waits_for_room() && (!draining_ || is_all)) return ExitCode::all_answered;
  progress_.finish(state_);
  return stopped("the requests that ran are finished", ExitCode::drained);
}

std::optional<ExitCode> BatchJob::handle_signals() {
  const StopRequest::Wish wished = wish();
  if (wished == StopRequest::Wish::none) return std::nullopt;
  if (wished == StopRequest::Wish::at_once) {
    (void)files_->journal.finish();
    return stopped("it came twice, so the requests that ran are given up", ExitCode::interrupted);
  }
  if (!draining_) {
    draining_ = state_.draining = true;
    progress_.print("finishing the requests that run; Ctrl-C again to stop at once");
    if (const auto drained = session_->engine().drain(); !drained.ok()) {
      return failed(drained.error());
    }
  }
  if (wished == StopRequest::Wish::drain || pending_.empty()) return std::nullopt;
  if (const auto finished = output_->finish(); !finished.ok()) return failed(finished.error());
  progress_.finish(state_);
  return stopped(fmt::format("{} requests still ran after job.grace_seconds ({}) and are given up",
                             pending_.size(), config_.grace_seconds),
                 ExitCode::drained);
}

Result<void> BatchJob::read_ahead() {
  const bool broken_before = feed_->broken().has_value();
  const auto read = feed_->read();
  count_lines();
  if (feed_->broken() && !broken_before) {
    progress_.print(feed_->broken()->message + "; finishing the requests that run");
  }
  return read;
}

Result<void> BatchJob::tend_output() {
  TROUPE_TRY(const std::string told, output_->tend(Clock::now()));
  count_lines();
  if (!told.empty()) teller_.tell_wait(told);
  return {};
}

Result<void> BatchJob::check_failures() const {
  const auto most = config_.max_failures;
  if (!most || state_.errors <= static_cast<std::uint64_t>(*most)) return {};
  return fail(ErrorCode::resource_exhausted,
              "{} error line{} more than job.max_failures ({}) allows; see {} in {}", state_.errors,
              state_.errors == 1 ? " is" : "s are", *most, state_.errors == 1 ? "it" : "them",
              config_.output);
}

Result<void> BatchJob::take_report(EngineReport report) {
  TROUPE_CHECK(write_answers(report.completions));
  if (metrics_) metrics_->metrics().observe(report);
  reporter_.take(report, state_);
  count_lines();
  for (const WidenedLayer& widened : report.widened) teller_.tell_fallback(widened);
  pending_.note_kept(report.kept_share);
  for (const std::uint64_t id : report.dropped) dropped_ += pending_.take(id) ? 1 : 0;
  if (report.first_token && !std::exchange(first_token_seen_, true)) {
    log::info("first token {} ms after the start",
              std::chrono::duration_cast<milliseconds>(Clock::now() - began_).count());
  }
  return {};
}

/// Those that no line can hold become errors.
Result<void> BatchJob::write_answers(std::vector<Completion>& completions) {
  if (completions.empty()) return {};
  const SpanScope span(&reporter_.recorder().spans(), SpanKind::write);
  for (Completion& completion : completions) {
    const auto header = pending_.take(completion.id);
    if (!header) continue;
    TROUPE_CHECK(output_->write(*header, completion));
    shown_.add(*header, completion);
  }
  return {};
}

void BatchJob::count_lines() {
  state_.done = output_->lines();
  state_.errors = output_->errors().count;
}

void BatchJob::update_progress() {
  state_.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  state_.notice = replacement_wait_.notice(Clock::now());
  const std::string output_notice = output_ ? output_->notice(Clock::now()) : "";
  if (!state_.notice.empty() && !output_notice.empty()) state_.notice += "; ";
  state_.notice += output_notice;
  progress_.update(state_);
  if (metrics_) metrics_->metrics().set_lines(state_.done, state_.total);
  if (metrics_) metrics_->metrics().set_rank_busy(state_.rank_busy);
}

ExitCode BatchJob::stopped(std::string_view what, ExitCode code) {
  std::string text(what);
  if (const auto lost = output_->lost(); !lost.empty()) text += "; " + lost;
  log::info("stopped by a signal; {}", text);
  progress_.tell(stopped_text(text, standing()));
  return code;
}

ExitCode BatchJob::failed(const Error& error) {
  (void)files_->journal.finish();
  count_lines();
  failure_ = error.message;
  const int signals = signals_.count();
  if (error.code == ErrorCode::cancelled && signals > 0) {
    return stopped(error.message, signals > 1 ? ExitCode::interrupted : ExitCode::drained);
  }
  log::error("{}", error.message);
  progress_.tell(failed_text(error.message, standing()));
  return ExitCode::failed;
}

ExitCode BatchJob::actor_down(std::vector<ActorDown> downs) {
  const Error cause = session_->cause_of(
      std::move(downs), [this](const EngineReport& report) { (void)take_report(report); });
  return failed(cause);
}

void BatchJob::write_reports(ExitCode code) {
  if (code == ExitCode::all_answered && state_.errors > 0) code = ExitCode::finished_with_errors;
  if (const auto outside = reporter_.recorder().share_outside_model()) {
    log::info("time outside the model: {:.1f} %", 100 * *outside);
  }
  const auto written = reporter_.write(code, failure_, output_->errors(), files_->folder,
                                       files_->journal.identity());
  if (!written.ok()) log::warning("{}", written.error().message);
}

ExitCode BatchJob::finished() {
  update_progress();
  progress_.finish(state_);
  teller_.tell_errors(output_->errors());
  shown_.print(config_.output == standard_stream ? stderr : stdout);
  teller_.tell_files(config_.output, files_->folder);
  return state_.errors > 0 ? ExitCode::finished_with_errors : ExitCode::all_answered;
}

}  // namespace

ExitCode run_batch_job(const JobPlan& plan, const RunOptions& options, StopSignals& signals) {
  return BatchJob(plan, options, signals).run();
}

}  // namespace troupe
