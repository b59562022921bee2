#pragma once

#include <string_view>

#include "runtime/actor/cluster.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The options of a cluster with a node on each of some hosts: "h1,user@h2". Agents are started by
/// ssh (SshNodeStarter), which gets this program to hosts that lack it; nodes are named after the
/// hosts and count as many cpus as this machine has. Empty: this machine alone.
///
/// Hosts reach this process at its address towards the first of them. Errors: invalid_argument for
/// a list with an empty name; not_found for a name that the name server does not know, as one of
/// ssh's configuration alone (then fill ClusterOptions by hand); io.
Result<ClusterOptions> ssh_cluster(std::string_view hosts);

}  // namespace troupe
