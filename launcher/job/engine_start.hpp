#pragma once

#include <memory>
#include <string>

#include "launcher/cli/run_options.hpp"
#include "launcher/job/engine_session.hpp"
#include "launcher/job/job_files.hpp"
#include "launcher/job/job_plan.hpp"
#include "launcher/job/job_teller.hpp"
#include "launcher/job/node_wait.hpp"
#include "launcher/job/stop_signals.hpp"
#include "launcher/progress/progress_printer.hpp"
#include "launcher/report/job_recorder.hpp"
#include "runtime/base/keep_going.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The steps of a start, for its progress line: looks for and copies checkpoints; loads the model.
std::string copying_phase(std::uint64_t copied, std::uint64_t total, std::size_t copies);
std::string loading_phase(std::string_view model, const LoadingState& loading);

/// Starts the engine of a job, and shows meanwhile how far that is. One thread at a time.
class EngineStart {
 public:
  /// Where it is shown.
  struct View {
    ProgressPrinter& progress;
    ProgressState& state;  ///< its phase
    JobTeller& teller;
    JobRecorder& recorder;
    KeepGoing keep_going;  ///< called a few times a second; false gives up
  };

  /// All that is referred to outlives the object.
  EngineStart(const JobPlan& plan, const JobFiles& files, const RunOptions& options,
              StopSignals& signals, View view);

  /// Starts the nodes and begins to start the engine. Errors: as EngineSession::start.
  Result<std::unique_ptr<EngineSession>> begin();
  /// Waits until the engine takes requests. Errors: as EngineSession::wait_until_ready.
  Result<void> finish(EngineSession& session);

  /// What a node that joins has to run; after begin().
  const std::string& join_command() const { return nodes_.join_command(); }

 private:
  const JobPlan& plan_;
  const JobFiles& files_;
  const RunOptions& options_;
  StopSignals& signals_;
  View view_;
  NodeWait nodes_;
};

}  // namespace troupe
