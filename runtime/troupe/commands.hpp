#pragma once

#include "runtime/troupe/reach.hpp"

namespace troupe {

/// The commands of `troupe`: each asks, prints the answer to stdout and returns the exit status.

Result<int> show_status(LinkLoop& loop, const StateCommand& command);
Result<int> show_nodes(const ReachedCluster& cluster, const StateCommand& command);
Result<int> show_actors(const ReachedCluster& cluster, const StateCommand& command);
Result<int> show_groups(const ReachedCluster& cluster, const StateCommand& command);
Result<int> show_objects(const ReachedCluster& cluster, const StateCommand& command);
/// `logs`: prints a log, or lists those there are.
Result<int> print_log(const ReachedCluster& cluster, const StateCommand& command);
/// `metrics`: prints them, or serves them until the cluster ends.
Result<int> show_metrics(const ReachedCluster& cluster, const StateCommand& command);
Result<int> show_stack(const ReachedCluster& cluster, const StateCommand& command);
/// `timeline`: records calls and writes the trace.
Result<int> record_timeline(const ReachedCluster& cluster, const StateCommand& command);
Result<int> drain_node(const ReachedCluster& cluster, const StateCommand& command);
Result<int> join_hosts(const ReachedCluster& cluster, const StateCommand& command);
Result<int> stop_cluster(const ReachedCluster& cluster, const StateCommand& command);

}  // namespace troupe
