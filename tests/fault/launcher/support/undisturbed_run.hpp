#pragma once

#include <chrono>
#include <string_view>

#include "tests/fault/launcher/support/launcher_run.hpp"

namespace troupe::test {

/// Expects that the job finishes within `limit` and has answered each of its `requests`, and that
/// its lines are those of an undisturbed run with the same arguments (LauncherRun::start), in any
/// order.
void finish_as_undisturbed(LauncherRun& run, std::string_view parallel, int requests,
                           int longest_answer, std::chrono::milliseconds limit);

}  // namespace troupe::test
