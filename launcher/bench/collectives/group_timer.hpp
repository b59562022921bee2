#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/bench/collectives/collective_figures.hpp"
#include "models/ops/device/device.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// What to time in a group, and how.
struct GroupTimes {
  std::string group;               ///< its name in the figures
  int ranks = 2;                   ///< on GPUs rank r has GPU r
  std::vector<std::string> calls;  ///< see CollectiveFigure::call
  DeviceKind device = DeviceKind::cpu;
  DType dtype = DType::f32;  ///< of the partial sums
  std::string collectives;   ///< between hosts' memories: "shm" or "network"
  std::vector<std::int64_t> bytes;
  double seconds = 0.05;
};

/// Times a group with a thread for each rank. On GPUs short calls are captured in graphs, as passes
/// are. Errors: those of the device and of the collectives.
Result<GroupFigures> time_group(const GroupTimes& times);

/// Returns the bytes per second of a large message between two such ranks.
Result<double> message_bytes_per_second(GroupTimes times);

}  // namespace troupe
