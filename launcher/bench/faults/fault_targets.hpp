#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "launcher/bench/faults/fault_progress.hpp"

namespace troupe {

/// A time that the faults of some kinds are to keep.
struct FaultTarget {
  std::string_view what;   ///< "killed: noticed"
  std::string_view unit;   ///< "ms" or "s"
  double limit = 0;        ///< in that unit
  bool is_of_p95 = false;  ///< the limit is of the 95th percentile, else of all
  double p50 = 0, p95 = 0, most = 0;

  bool is_met() const { return (is_of_p95 ? p95 : most) <= limit; }
};

/// The targets that these faults can be held against, with what they took. Times until the next
/// step are those of the demo's models on an idle machine whose processes were not killed in the
/// minute before.
std::vector<FaultTarget> fault_targets(std::span<const FaultRecord> faults);

}  // namespace troupe
