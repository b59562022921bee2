#pragma once

#include "runtime/actor/actor_types.hpp"

namespace troupe {

/// Tells NCCL, by the environment of this process, the network interface of its node and that
/// processes of other nodes are on other hosts, also where two nodes are on one machine. Values
/// that the user has set stay; nothing is set where no other host takes part. Call it before this
/// process starts a thread.
void set_nccl_environment(const NodePlace& place);

}  // namespace troupe
