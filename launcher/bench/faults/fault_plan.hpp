#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "launcher/cli/fault_options.hpp"

namespace troupe {

/// A fault that is to come.
struct PlannedFault {
  FaultKind kind = FaultKind::worker;
  double wait_seconds = 0;  ///< after the recovery from the fault before it
  std::uint64_t draw = 0;   ///< chooses the victim: number `draw % victims` in the order of names
};

/// Plans `count` faults: each kind as often as the others, or once more, in random order, and at
/// random moments: waits are exponential with a mean of `mean_seconds`, at most 4 times that. A
/// function of `seed` alone, the same with every standard library. `kinds` is not empty.
std::vector<PlannedFault> plan_faults(std::span<const FaultKind> kinds, std::int64_t count,
                                      double mean_seconds, std::uint64_t seed);

}  // namespace troupe
