#pragma once

#include "runtime/link/link.hpp"

namespace troupe {

/// The two ends' names and limits. An actor's construction arguments may take 256 MiB.
inline constexpr const char* agent_role = "agent";
inline LinkPeer driver_peer() { return {"driver", "job"}; }
inline LinkLimits control_limits() {
  LinkLimits limits;
  limits.max_frame_bytes = (std::size_t{256} << 20) + 65536;
  limits.max_queued_bytes = std::size_t{512} << 20;
  return limits;
}

}  // namespace troupe
