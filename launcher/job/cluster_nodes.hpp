#pragma once

#include "launcher/config/cluster_config.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/base/result.hpp"
#include "runtime/node/ssh_node_starter.hpp"

namespace troupe {

/// The hosts of a job: cluster.hosts, with cluster.launch: slurm the allocation's nodes, with join
/// placeholders ("node1") for the nodes' names; none for this machine. Errors begin with the key.
Result<std::vector<std::string>> hosts_of(const Config& config);

/// A host as cluster.hosts has it.
struct HostEntry {
  SshHost ssh;
  std::string name;  ///< of the host alone
};
/// Takes "user@host:port" apart. Errors: invalid_argument.
Result<HostEntry> parse_host(const std::string& text);

/// Refuses keys of one way to start nodes beside another; asks for those that this one needs.
/// Errors begin with the key.
Result<void> check_cluster_keys(const Config::Cluster& cluster);

/// True if the job's only node is this machine, for a config whose cluster.hosts are hosts_of it.
bool computes_here(const Config& config);

/// Nodes of a job that take workers from its start: all but the spares, for a config whose
/// cluster.hosts are hosts_of it.
int node_count(const Config& config);

/// Workers that each of them takes: cluster.devices_per_node, or an equal share of `workers`.
int devices_per_node(const Config& config, int workers);

/// The nodes of a job, their starter, and where they reach this process. Nodes are named after
/// their hosts. Errors begin with the key: a host that is none, an interface that is none, no way
/// to a host. With cluster.launch: join the token is not filled in (read_token).
Result<ClusterOptions> cluster_of(const Config& config, int workers, int cores);

/// Fills the token of nodes that join in, and makes its file if there is none. Errors begin with
/// the key.
Result<void> read_token(const Config& config, ClusterOptions& options);

}  // namespace troupe
