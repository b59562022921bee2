#pragma once

#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// Runs an agent process: reads its AgentBootstrap from `parent` (a socketpair to the driver's
/// machine side), connects to the driver, starts, watches, pings and ends actor processes on
/// request, and keeps the node's shared memory. Ends when told to, when `parent` closes or when the
/// driver is lost, together with all actor processes. Returns the exit code. Runs on the main
/// thread, which forks all children.
int run_agent(UniqueFd parent);

}  // namespace troupe
