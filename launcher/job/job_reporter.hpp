#pragma once

#include <chrono>
#include <string>

#include "launcher/cli/exit_code.hpp"
#include "launcher/job/engine_session.hpp"
#include "launcher/job/job_plan.hpp"
#include "launcher/progress/progress_view.hpp"
#include "launcher/report/job_recorder.hpp"

namespace troupe {

/// The outcome in reports for an exit code.
JobOutcome outcome_of(ExitCode code);

/// A job's reporting: collects in a JobRecorder, requests telemetry from the engine's processes
/// once a second and at the end, and writes the files. One thread at a time.
class JobReporter {
 public:
  using Clock = std::chrono::steady_clock;

  explicit JobReporter(const JobPlan& plan);

  JobRecorder& recorder() { return recorder_; }
  const JobRecorder& recorder() const { return recorder_; }

  /// The job is resumed: `lines` of its output, `errors` of them error lines, are from earlier
  /// runs. Reads their measurements from `folder`, where save_if_due() wrote them.
  void go_on(const std::string& folder, const JobIdentity& job, std::uint64_t lines,
             std::uint64_t errors);
  /// Saves the measurements in `folder` from time to time, for a run that resumes after this one
  /// was killed.
  void save_if_due(const std::string& folder, const JobIdentity& job, Clock::time_point now);

  /// The engine now takes requests and answers telemetry requests.
  void engine_ready();
  /// Notes if there is nothing to do before more input comes; returns for how long there was not.
  double note_input_wait(bool waits);
  /// Requests telemetry if it is time; the answers come with EngineSession::take.
  void ask_if_due(EngineSession& session, Clock::time_point now);
  /// Takes those answers. True: there are new loads of ranks.
  bool take(std::vector<Mailbox::Telemetry> telemetry);
  /// Takes the engine's report and updates the progress figures.
  void take(const EngineReport& report, ProgressState& state);

  /// Call at the job's end while the engine still runs: requests full telemetry, and waits at most
  /// a second for the answers. Answers to inference requests that come meanwhile are dropped. Does
  /// nothing before engine_ready().
  void collect(EngineSession& session);
  /// Notes the outcome with the output's error lines, and writes report.json, report.html,
  /// trace.json and the data for a resumed run into the folder. Errors: those of write_reports and
  /// write_figures.
  Result<void> write(ExitCode code, std::string reason, ErrorTally errors,
                     const std::string& folder, const JobIdentity& job);

 private:
  JobRecorder recorder_;
  bool ready_ = false;
  Clock::time_point next_ask_{};
  Clock::time_point next_save_{};
};

}  // namespace troupe
