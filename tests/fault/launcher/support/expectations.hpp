#pragma once

#include <string>
#include <vector>

#include "tests/fault/launcher/support/launcher_run.hpp"

namespace troupe::test {

/// The signal to send to a process of the job.
struct Blow {
  std::string role;       ///< of the process, see JobProcess::role
  int signal_number = 0;  ///< SIGKILL or SIGSTOP
};

/// Sends the signal to the process of that role and checks everything promised for that case with
/// GoogleTest's expectations: all processes gone in time, no socket, shared memory or file left,
/// the output whole, and, unless it was the driver, exit code 3 and a final message that names the
/// cause, the log and the number of answers. Prints how long that took, under `when`.
void strike_and_check(LauncherRun& run, const Blow& blow, const std::string& when);

}  // namespace troupe::test
