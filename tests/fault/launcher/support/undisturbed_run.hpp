#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "tests/fault/launcher/support/launcher_run.hpp"
#include "tests/support/time_scale.hpp"

namespace troupe::test {

/// Requests that are under way for seconds, also where only our own code is slowed down (TSan).
inline constexpr int seconds_of_requests = time_scale == 1 ? 160 : 80;

/// The arguments of an undisturbed run; see LauncherRun::start.
struct Undisturbed {
  std::string_view parallel;
  int requests = 0;
  int longest_answer = 0;
  std::string sections = std::string(LauncherRun::no_restarts);
  std::string_view body = "{}";
};

/// Expects that the job finishes within `limit` and has answered each of its requests, and that its
/// lines are those of an undisturbed run with these arguments, in any order.
void finish_as_undisturbed(LauncherRun& run, const Undisturbed& as,
                           std::chrono::milliseconds limit);

}  // namespace troupe::test
