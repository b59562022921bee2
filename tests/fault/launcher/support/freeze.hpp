#pragma once

#include <chrono>

namespace troupe::test {

/// Stops all processes of a running job for `duration` (SIGSTOP), continues them, and expects the
/// same processes to give more answers.
void freeze_and_check(std::chrono::milliseconds duration);

/// Presses Ctrl-Z, waits until the job is stopped, then for `duration`; then fg. Expects the same.
void press_ctrl_z_and_check(std::chrono::milliseconds duration);

}  // namespace troupe::test
