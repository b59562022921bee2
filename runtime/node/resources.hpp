#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe {

/// Amounts of what a node has, reserved for an actor or a bundle, or free. Placement counts them;
/// nobody is kept from using more cpus (but see SpawnOptions::binds_cpus) or memory.
struct Resources {
  int cpus = 0;
  int devices = 0;  ///< whole ones, shared with nobody
  std::int64_t memory_bytes = 0;
  std::unordered_map<std::string, std::int64_t>
      custom{};  ///< anything else that nodes have, by name

  /// invalid_argument names the first negative amount.
  Result<void> check() const;
  bool is_nothing() const;
  /// True if `asked` is no more than this, in each resource.
  bool covers(const Resources& asked) const;
  Resources& operator+=(const Resources& other);
  Resources& operator-=(const Resources& covered);
  bool operator==(const Resources&) const = default;
  /// "4 devices, 2 cpus"; "nothing".
  std::string describe() const;

  template <class Archive>
  void fields(Archive& archive) {
    archive(cpus, devices, memory_bytes, custom);
  }
};

/// A node in placement's view. Several virtual nodes may share one machine.
struct NodeSpec {
  std::string name{};
  int cpus = 0;
  std::vector<int> devices{};     ///< ids, as passed to actors
  std::int64_t memory_bytes = 0;  ///< 0: not counted, and requests for memory are refused
  std::unordered_map<std::string, std::int64_t> custom{};
  /// It gets bundles of placement groups only if the other nodes have no room for them.
  bool is_spare = false;
  /// It is a place for a node that may join a running cluster: nobody waits for it at the start,
  /// and it has no room before its agent has come.
  bool joins_later = false;

  Resources capacity() const {
    return {cpus, static_cast<int>(devices.size()), memory_bytes, custom};
  }

  template <class Archive>
  void fields(Archive& archive) {
    archive(name, cpus, devices, memory_bytes, custom, is_spare, joins_later);
  }
};

/// The distribution of bundles, or of actors that name no node, over the nodes; see place_bundles.
/// One actor by itself: `spread` takes the node with the fewest actors, and so does
/// `strict_spread`; the others the first node with room.
enum class PlacementStrategy {
  pack,           ///< all on one node if there is one with room, else on few
  spread,         ///< each on a node of its own if there are enough with room, else on many
  strict_pack,    ///< all on one node, or not at all
  strict_spread,  ///< each on a node of its own, or not at all
};
const char* name_of(PlacementStrategy strategy);

}  // namespace troupe
