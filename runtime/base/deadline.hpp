#pragma once

#include <chrono>

namespace troupe {

/// The moment at which a bounded wait gives up. Monotonic, so a change of the wall clock moves
/// none.
using Deadline = std::chrono::steady_clock::time_point;

/// `deadline_in(std::chrono::seconds(2))`.
inline Deadline deadline_in(std::chrono::steady_clock::duration wait) {
  return std::chrono::steady_clock::now() + wait;
}

}  // namespace troupe
