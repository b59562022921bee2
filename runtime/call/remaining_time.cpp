#include "runtime/call/remaining_time.hpp"

#include <algorithm>
#include <limits>

namespace troupe {

std::uint32_t remaining_ms(CallDeadline deadline) {
  if (deadline == no_deadline) return 0;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(left.count(), 1, std::numeric_limits<std::uint32_t>::max()));
}

CallDeadline deadline_of(std::uint32_t remaining_ms) {
  if (remaining_ms == 0) return no_deadline;
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(remaining_ms);
}

}  // namespace troupe
