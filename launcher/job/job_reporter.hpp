#pragma once

#include <chrono>
#include <string>

#include "launcher/cli/exit_code.hpp"
#include "launcher/job/engine_session.hpp"
#include "launcher/job/job_plan.hpp"
#include "launcher/progress/progress_view.hpp"
#include "launcher/report/job_recorder.hpp"

namespace troupe {

/// How reports call the end of a job.
JobOutcome outcome_of(ExitCode code);

/// What a job does for its reports: gathers in a JobRecorder, asks the processes of the engine for
/// their telemetry once a second and at the end, and writes the files. One thread at a time.
class JobReporter {
 public:
  using Clock = std::chrono::steady_clock;

  explicit JobReporter(const JobPlan& plan);

  JobRecorder& recorder() { return recorder_; }
  const JobRecorder& recorder() const { return recorder_; }

  /// The job is gone on with: `lines` of its output, `errors` of them, are of earlier runs. What
  /// those have measured is read from `folder`, where save_if_due() leaves it.
  void go_on(const std::string& folder, const JobIdentity& job, std::uint64_t lines,
             std::uint64_t errors);
  /// Keeps what is measured so far in `folder` from time to time, for a run that goes on after this
  /// one was killed.
  void save_if_due(const std::string& folder, const JobIdentity& job, Clock::time_point now);

  /// From now on the engine takes requests and tells of itself.
  void engine_ready();
  /// Whether there is nothing to do before more input comes; returns for how long there was not.
  double note_input_wait(bool waits);
  /// Asks for telemetry if it is time; the answers come with EngineSession::take.
  void ask_if_due(EngineSession& session, Clock::time_point now);
  /// Takes those answers. True: the ranks' load is news.
  bool take(std::vector<Mailbox::Telemetry> telemetry);
  /// Takes what the engine reports, and brings the figures of progress up to date with it.
  void take(const EngineReport& report, ProgressState& state);

  /// The job is at its end and the engine still there: asks for everything, and waits a second at
  /// most for what the processes tell. Answers to requests that come meanwhile are dropped. Nothing
  /// before engine_ready().
  void collect(EngineSession& session);
  /// Notes how it ended, with the error lines of the output, and writes report.json, report.html,
  /// trace.json and what a run that goes on wants to know into the folder. Errors: those of
  /// write_reports and write_figures.
  Result<void> write(ExitCode code, std::string reason, ErrorTally errors,
                     const std::string& folder, const JobIdentity& job);

 private:
  JobRecorder recorder_;
  bool ready_ = false;
  Clock::time_point next_ask_{};
  Clock::time_point next_save_{};
};

}  // namespace troupe
