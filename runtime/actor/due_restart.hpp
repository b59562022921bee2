#pragma once

#include <chrono>
#include <cstdint>

#include "runtime/call/actor_address.hpp"

namespace troupe {

/// A restart of an actor that has been decided.
struct DueRestart {
  ActorId actor = 0;
  std::uint32_t incarnation = 0;  ///< the one that it begins; it is void if that has been there
  std::chrono::steady_clock::time_point due;
};

}  // namespace troupe
