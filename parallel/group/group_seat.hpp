#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/call/actor_address.hpp"

namespace troupe {

// What ActorGroup and GroupMember say to each other while a group forms.

/// Which forming of which group a call is part of.
struct GroupEpoch {
  std::string group;  ///< as GroupSeat::group
  std::uint32_t epoch = 0;

  template <class Archive>
  void fields(Archive& archive) {
    archive(group, epoch);
  }
};

/// A member's place in a group.
struct GroupSeat {
  std::string group;  ///< unique in the cluster: part of the names of regions and keys
  std::uint32_t epoch = 0;
  std::int32_t rank = 0;
  std::vector<ActorAddress> members{};  ///< by rank

  template <class Archive>
  void fields(Archive& archive) {
    archive(group, epoch, rank, members);
  }
};

/// Where a member is in this epoch.
struct MemberPlace {
  std::string node;
  std::uint32_t incarnation = 0;

  template <class Archive>
  void fields(Archive& archive) {
    archive(node, incarnation);
  }
};

/// Where a member awaits the others of one of its communicators.
struct CommunicatorListener {
  std::string name;
  std::vector<std::int32_t> ranks;
  std::string addresses;  ///< opaque; empty if they need no links

  template <class Archive>
  void fields(Archive& archive) {
    archive(name, ranks, addresses);
  }
};

}  // namespace troupe
