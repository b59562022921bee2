#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "runtime/call/actor_address.hpp"

namespace troupe {

/// Names a process of the job on the object plane; it is the id of its ObjectStore on the call
/// plane, too. The highest bit tells it from the ids of actors.
using StoreId = ActorId;

inline constexpr StoreId store_bit = StoreId{1} << 63;
constexpr bool is_store(ActorId id) { return (id & store_bit) != 0; }

/// The store of the process that has this endpoint (CallHub::endpoint).
StoreId store_at(const std::string& endpoint);
/// The locality in an endpoint (NetworkAddress); empty if no other one reaches that process.
std::string locality_of(const std::string& endpoint);
/// Where that store is called.
ActorAddress address_of_store(const std::string& endpoint);

/// Identifies an object of a job; never reused.
struct ObjectId {
  StoreId owner = 0;         ///< the process that has put it; 0: no object
  std::uint64_t number = 0;  ///< among the owner's

  template <class Archive>
  void fields(Archive& archive) {
    archive(owner, number);
  }
  friend bool operator==(const ObjectId&, const ObjectId&) = default;
  friend auto operator<=>(const ObjectId&, const ObjectId&) = default;
};

/// An object, and where its owner is called.
struct ObjectAddress {
  ObjectId id;
  std::string owner_endpoint;
  std::string owner_name;  ///< the owning process's, for messages
  /// The owner has put it into a segment, for which processes of its machine may ask at once.
  bool is_in_segment = false;

  template <class Archive>
  void fields(Archive& archive) {
    archive(id, owner_endpoint, owner_name, is_in_segment);
  }
};

}  // namespace troupe

template <>
struct std::hash<troupe::ObjectId> {
  std::size_t operator()(const troupe::ObjectId& id) const noexcept {
    return static_cast<std::size_t>(id.owner ^ (id.number * 0x9E3779B97F4A7C15U));
  }
};
