#pragma once

#include <functional>

#include "runtime/base/result.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// Counts the signals that ask the job to end: SIGINT, SIGTERM, SIGUSR1 (the warning that Slurm's
/// --signal=USR1@SECONDS sends ahead of a time limit) and, unless it was ignored before (nohup),
/// SIGHUP. Make it in main before any thread: the signals are blocked from then on, in this thread
/// and those it starts. SIGPIPE is ignored, so that a reader of the terminal output who goes (`|
/// head`) does not end the job, and so is SIGXFSZ: a file size limit (ulimit -f) is told by the
/// write. SIGTSTP (Ctrl-Z) is held back until the next count(), so that other processes can be told
/// before this one stops.
class StopSignals {
 public:
  static Result<StopSignals> block();

  /// How often one has come since the start. A SIGUSR1 is at most the first: a batch script may
  /// pass on what the processes of its job were sent as well. Stops this process here if Ctrl-Z was
  /// pressed, and otherwise never waits.
  int count();
  /// What count() does before this process stops, and once it goes on.
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
