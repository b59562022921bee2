#pragma once

#include <vector>

#include "runtime/node/resources.hpp"

namespace troupe {

/// Resources of one node, with the ids of the devices: what is free of it, or what somebody holds.
struct ResourceRoom {
  Resources amounts;
  std::vector<int> devices = {};  ///< ascending; as many as `amounts` says

  static ResourceRoom of(const NodeSpec& node);
  /// Takes `asked`, which the amounts cover, out of the room: the devices with the lowest ids.
  ResourceRoom take(const Resources& asked);
  void put_back(const ResourceRoom& taken);
};

}  // namespace troupe
