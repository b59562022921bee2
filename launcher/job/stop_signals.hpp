#pragma once

#include <functional>

#include "runtime/base/result.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// Counts the signals that ask the job to end: SIGINT, SIGTERM, SIGUSR1 (the warning that Slurm's
/// --signal=USR1@SECONDS sends ahead of a time limit) and, unless it was ignored before (nohup),
/// SIGHUP. Create it in main before any thread: the signals are blocked from then on, in this
/// thread and those it starts. SIGPIPE is ignored, so that a reader of the terminal output that
/// exits (`| head`) does not end the job, and so is SIGXFSZ: the write reports a file size limit
/// (ulimit -f). SIGTSTP (Ctrl-Z) is held back until the next count(), so that other processes can
/// be stopped before this one.
class StopSignals {
 public:
  static Result<StopSignals> block();

  /// Returns the number of signals since the start. SIGUSR1 counts only if it is the first: a batch
  /// script may pass on a signal that the job's processes got as well. Stops this process here if
  /// Ctrl-Z was pressed, and otherwise never waits.
  int count();
  /// Callbacks of count() before this process stops, and after it continues.
  void on_pause(std::function<void()> before, std::function<void()> after) {
    before_pause_ = std::move(before);
    after_pause_ = std::move(after);
  }

 private:
  explicit StopSignals(UniqueFd fd) : fd_(std::move(fd)) {}
  void pause();

  UniqueFd fd_;
  int count_ = 0;
  std::function<void()> before_pause_, after_pause_;
};

}  // namespace troupe
