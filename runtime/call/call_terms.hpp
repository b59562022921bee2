#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace troupe {

/// When nobody waits for a call's answer any more, by the clock of this process; it travels as the
/// time that remains.
using CallDeadline = std::chrono::steady_clock::time_point;
inline constexpr CallDeadline no_deadline = CallDeadline::max();

/// What a caller asks of its calls: `handle.with({.timeout = 2s}).call<&A::f>(x)`.
struct CallOptions {
  /// The call fails with timed_out after so long, and is not run any more if it is queued then.
  /// Without it, only the deadline of the method that makes the call counts.
  std::optional<std::chrono::nanoseconds> timeout{};
  /// How often the call may be made again after its link broke or its actor was restarted; -1:
  /// always. Without it, as the actor was spawned (SpawnOptions::max_call_retries).
  /// Such a call runs exactly once while its actor lives, and at least once over its restarts. One
  /// with 0 runs at most once: if its link breaks or its actor ends before the answer has come, it
  /// fails with actor_unavailable or actor_died and nobody knows whether it has run. Calls of both
  /// kinds begin in the order in which a thread makes them (CallHub).
  std::optional<int> max_retries{};
};

/// The same as the call plane sees it.
struct CallTerms {
  CallDeadline deadline = no_deadline;
  int max_retries = 0;
};

}  // namespace troupe
