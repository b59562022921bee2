#pragma once

#include "launcher/config/cluster_config.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Nodes that a job has: those of cluster.hosts, or this machine.
int node_count(const Config& config);

/// Workers that each node takes: cluster.devices_per_node, or an equal share of `workers`.
int devices_per_node(const Config& config, int workers);

/// The nodes of a job, their starter, and where they reach this process. Nodes are named after
/// their hosts. Errors begin with the key: a host that is none, an interface that is none, no way
/// to a host.
Result<ClusterOptions> cluster_of(const Config& config, int workers, int cores);

}  // namespace troupe
