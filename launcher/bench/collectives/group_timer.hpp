#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/bench/collectives/collective_figures.hpp"
#include "models/ops/device/device.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// What is timed of a group, and how.
struct GroupTimes {
  std::string group;               ///< its name in the figures
  int ranks = 2;                   ///< on GPUs rank r has GPU r
  std::vector<std::string> calls;  ///< as CollectiveFigure::call
  DeviceKind device = DeviceKind::cpu;
  DType dtype = DType::f32;  ///< of the partial sums
  std::string collectives;   ///< between hosts' memories: "shm" or "gloo"
  std::vector<std::int64_t> bytes;
  double seconds = 0.05;
};

/// Times a group, a thread for each rank. On GPUs short calls are recorded, as passes are. Errors:
/// those of the device and of the collectives.
Result<GroupFigures> time_group(const GroupTimes& times);

/// A large message from one rank to another of two such ranks, in bytes a second.
Result<double> message_bytes_per_second(GroupTimes times);

}  // namespace troupe
