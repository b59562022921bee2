#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace troupe {

/// Names one actor of a job for good: ids are never given out twice.
using ActorId = std::uint64_t;

/// Where an actor can be called. Two addresses are equal if they name the same actor.
struct ActorAddress {
  ActorId id = 0;        ///< 0: no actor
  std::string endpoint;  ///< of the process that hosts it, in the form its Transport understands
  std::string name;      ///< as given at spawn, or made from type and id; for messages
  std::string type;      ///< the class's actor_type

  template <class Archive>
  void fields(Archive& archive) {
    archive(id, endpoint, name, type);
  }
  friend bool operator==(const ActorAddress& a, const ActorAddress& b) { return a.id == b.id; }
  friend auto operator<=>(const ActorAddress& a, const ActorAddress& b) { return a.id <=> b.id; }
};

}  // namespace troupe
