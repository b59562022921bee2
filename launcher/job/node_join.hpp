#pragma once

#include <string>

#include "launcher/job/job_plan.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/base/keep_going.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// True if a node of that name is there.
bool is_alive(const Cluster& cluster, const std::string& node);

/// Takes nodes into a running job, for Cluster::on_join, and waits until they have come. With
/// cluster.launch: ssh these are the hosts of the request; with slurm those nodes of the allocation
/// that it was made from, or the named ones of them; without either the drained nodes. With join
/// says that `join_command` is to be run. Asks `keep_going` now and then. Returns what has been
/// done, for people. Errors: unsupported for other jobs; invalid_argument for a text that is no
/// host, or no node of that allocation or the job's own; those of Cluster::start_node, if no node
/// can be started; why an agent has not come; cancelled.
Result<std::string> join_nodes(Cluster& cluster, const JobPlan& plan,
                               const std::string& join_command, const JoinRequest& request,
                               const KeepGoing& keep_going);

}  // namespace troupe
