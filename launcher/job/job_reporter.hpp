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
  /// Notes how it ended and writes report.json, report.html and trace.json into the folder. Errors:
  /// those of write_reports.
  Result<void> write(ExitCode code, std::string reason, const std::string& folder);

 private:
  JobRecorder recorder_;
  bool ready_ = false;
  Clock::time_point next_ask_{};
};

}  // namespace troupe
