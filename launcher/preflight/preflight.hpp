#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "launcher/preflight/findings.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/base/keep_going.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// What came of looking at all nodes.
struct PreflightReport {
  std::string table;
  std::vector<Finding> findings;
  PreflightNeeds needs;  ///< with the files of the checkpoints
  std::vector<ProbedNode> nodes;
  double seconds = 0;
};

/// Looks at the nodes of a job before anything is loaded: an actor on each gathers NodeFacts and
/// calls those of the others (probed_peers). `needs.checkpoints` give folders only; their files are
/// looked at here. Asks `keep_going` now and then. Errors: cancelled; those of starting actors. A
/// node that does not answer is a finding.
Result<PreflightReport> run_preflight(Cluster& cluster, PreflightNeeds needs,
                                      const KeepGoing& keep_going = nullptr);

/// "2 nodes looked at in 0.21 s".
std::string describe(const PreflightReport& report);

/// An error with a line for each finding that is fatal, if there is one.
Result<void> check_preflight(const PreflightReport& report);

/// The nodes whose links from `node` are measured: of up to 64 nodes all others, beginning with the
/// next, so that no two nodes begin with the same; of more those at distances 1, 2, 4 and so on.
std::vector<std::size_t> probed_peers(std::size_t node, std::size_t nodes);

}  // namespace troupe
