#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "parallel/collectives/shm/shm_collectives.hpp"

namespace troupe {

/// The name of a group's only communicator, unless its members say otherwise.
inline constexpr const char* whole_group = "all";

/// One communicator of an actor group: Collectives between some of its members. Each of these gives
/// the same values.
struct CommunicatorSpec {
  std::string name = whole_group;  ///< unique among those of a member
  std::vector<int> ranks;          ///< in the group; they are ranks 0, 1, ... of the communicator
  bool shares_memory = true;       ///< between members on one node; false: links there, too
  /// What a member can send to another one before that receives it (Collectives::send).
  std::size_t mailbox_bytes = default_mailbox_bytes;
  std::chrono::milliseconds timeout = std::chrono::seconds(30);  ///< Collectives::set_timeout
};

}  // namespace troupe
