#pragma once

#include "runtime/base/result.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// Counts the signals that ask the job to end: SIGINT, SIGTERM and, unless it was ignored before
/// (nohup), SIGHUP. Make it in main before
/// any thread: the signals are blocked from then on, in this thread and those it starts. SIGPIPE is
/// ignored, so that a reader of the terminal output who goes (`| head`) does not end the job, and
/// so is SIGXFSZ: a file size limit (ulimit -f) is told by the write.
class StopSignals {
 public:
  static Result<StopSignals> block();

  /// How often one has come since the start. Never waits.
  int count();

 private:
  explicit StopSignals(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
  int count_ = 0;
};

}  // namespace troupe
