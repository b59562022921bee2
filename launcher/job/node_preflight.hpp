#pragma once

#include "launcher/job/job_plan.hpp"
#include "launcher/preflight/preflight.hpp"
#include "launcher/report/job_hosts.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/base/keep_going.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// True if the plan's nodes are other machines, which are looked at before anything is loaded.
bool has_preflight(const JobPlan& plan);

/// Returns the needs of the plan's processes, node by node.
PreflightNeeds preflight_needs(const JobPlan& plan);

/// Refuses a plan of more nodes than this process may have descriptors for: resource_exhausted.
Result<void> check_own_open_files(const JobPlan& plan);

/// The nodes as the report names them, of a plan that has been looked at.
JobHosts job_hosts(const JobPlan& plan, const PreflightReport& report);

/// For `launcher check`: starts the agents of the plan's nodes alone, looks at the nodes, and ends
/// the agents. Errors: those of Cluster::start and Preflight::finish.
Result<PreflightReport> look_at_nodes(const JobPlan& plan);

}  // namespace troupe
