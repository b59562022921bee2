#pragma once

namespace troupe {

/// The meaning of the launcher's exit status.
enum class ExitCode : int {
  all_answered = 0,          ///< every line has its answer
  finished_with_errors = 1,  ///< every line has its answer or its error line
  refused = 2,               ///< nothing was started: command line, YAML, checkpoint or files
  failed = 3,                ///< the job broke off; the answers written so far are whole
  drained = 4,               ///< a signal ended the job after the requests then running
  interrupted = 130,         ///< a second Ctrl-C ended it at once
};

}  // namespace troupe
