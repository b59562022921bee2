#include "runtime/node/resource_room.hpp"

#include <algorithm>

namespace troupe {

ResourceRoom ResourceRoom::of(const NodeSpec& node) {
  ResourceRoom room{node.capacity(), node.devices};
  std::ranges::sort(room.devices);
  return room;
}

ResourceRoom ResourceRoom::take(const Resources& asked) {
  const auto end = devices.begin() + asked.devices;
  ResourceRoom taken{asked, {devices.begin(), end}};
  devices.erase(devices.begin(), end);
  amounts -= asked;
  return taken;
}

void ResourceRoom::put_back(const ResourceRoom& taken) {
  const auto middle = devices.insert(devices.end(), taken.devices.begin(), taken.devices.end());
  std::inplace_merge(devices.begin(), middle, devices.end());
  amounts += taken.amounts;
}

}  // namespace troupe
