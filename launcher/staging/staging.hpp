#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "launcher/preflight/preflight.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// How far the copying is, of all copies together; false gives up (cancelled).
using StagingProgress =
    std::function<bool(std::uint64_t copied_bytes, std::uint64_t total_bytes, std::size_t copies)>;

/// Brings the checkpoints to all nodes that lack them, from the launcher's machine and to all at
/// once, and returns their folders, which are the same on every node. Nodes that share the stage
/// folder get one copy together. A node whose own copy of the checkpoint is equal gets a link to it
/// there. `report` is one that passed check_preflight, with
/// stage_name in its needs. Errors: a line for each node that could not be served; cancelled.
Result<std::vector<std::string>> stage_checkpoints(Cluster& cluster, const PreflightReport& report,
                                                   const StagingProgress& progress = nullptr);

}  // namespace troupe
