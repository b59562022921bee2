#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>

namespace troupe {

/// Identifies one actor of a job; ids are never reused.
using ActorId = std::uint64_t;

/// Where an actor can be called, or could when the address was made. Two addresses are equal if
/// their ids are.
struct ActorAddress {
  ActorId id = 0;        ///< 0: no actor
  std::string endpoint;  ///< the hosting process's, in the form its Transport understands
  std::string name;      ///< given at spawn, or made from type and id; for messages
  std::string type;      ///< the class's actor_type
  /// Counts how often the actor has been started again.
  std::uint32_t incarnation = 0;
  /// It may be started again elsewhere: whoever calls it asks where it is now.
  bool is_restartable = false;
  /// How often calls through handles are made again, unless they say otherwise (CallOptions).
  std::int32_t max_call_retries = 0;

  template <class Archive>
  void fields(Archive& archive) {
    archive(id, endpoint, name, type, incarnation, is_restartable, max_call_retries);
  }
  friend bool operator==(const ActorAddress& a, const ActorAddress& b) { return a.id == b.id; }
  friend auto operator<=>(const ActorAddress& a, const ActorAddress& b) { return a.id <=> b.id; }
};

/// One address for all who refer to the actor in this process.
using SharedAddress = std::shared_ptr<const ActorAddress>;

}  // namespace troupe
