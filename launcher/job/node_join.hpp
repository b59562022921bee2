#pragma once

#include <string>
#include <vector>

#include "launcher/job/job_plan.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// True if a node of that name is there.
bool is_alive(const Cluster& cluster, const std::string& node);

/// Takes hosts into a running job, for Cluster::on_join: with cluster.launch: ssh starts an agent
/// on each (none: on those of drained nodes), and waits until they have come; with join says that
/// `join_command` is to be run. Returns what has been done, for people. Errors: unsupported for
/// other jobs; invalid_argument for a text that is no host; those of Cluster::start_node; why an
/// agent has not come.
Result<std::string> join_nodes(Cluster& cluster, const JobPlan& plan,
                               const std::string& join_command,
                               const std::vector<std::string>& hosts);

}  // namespace troupe
