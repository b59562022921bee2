#pragma once

#include "runtime/troupe/reach.hpp"

namespace troupe {

/// `logs`: prints a log, or lists those there are.
Result<int> print_log(const ReachedCluster& cluster, const StateCommand& command);

}  // namespace troupe
