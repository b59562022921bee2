#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/node/resources.hpp"

namespace troupe {

/// Identifies a placement group of a job; never reused.
using PlacementGroupId = std::uint64_t;

/// One bundle of a placement group, for SpawnOptions::bundle.
struct BundleId {
  PlacementGroupId group = 0;
  std::uint32_t index = 0;  ///< in the group's bundles, from 0

  bool operator==(const BundleId&) const = default;
  template <class Archive>
  void fields(Archive& archive) {
    archive(group, index);
  }
};

/// A request for several reservations that are made together or not at all.
struct PlacementGroupOptions {
  std::string name{};  ///< unique among the groups that have not been removed; empty: made from
                       ///< the id
  std::vector<Resources> bundles{};  ///< each on one node; none may be empty
  PlacementStrategy strategy = PlacementStrategy::pack;
  /// Bundles that are lost with their node may be placed again (Cluster::place_again). Actors in
  /// them that may be restarted wait for that. Not for the strict strategies, as the lost
  /// bundles are placed without a look at the others.
  bool moves = false;
};

/// Reservations on nodes, made together, in which actors are placed later. A plain value: it says
/// where the bundles were placed, and holds nothing itself.
struct PlacementGroup {
  struct Bundle {
    Resources resources;
    std::string node;
    std::vector<int> devices = {};  ///< ids, ascending
    bool is_lost = false;  ///< with its node; it takes no actors, unless it is placed again

    template <class Archive>
    void fields(Archive& archive) {
      archive(resources, node, devices, is_lost);
    }
  };

  PlacementGroupId id = 0;
  std::string name;
  PlacementStrategy strategy = PlacementStrategy::pack;
  std::vector<Bundle> bundles;

  BundleId bundle(std::size_t index) const { return {id, static_cast<std::uint32_t>(index)}; }

  template <class Archive>
  void fields(Archive& archive) {
    archive(id, name, strategy, bundles);
  }
};

}  // namespace troupe
