#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/preflight/findings.hpp"
#include "launcher/preflight/node_look.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/base/keep_going.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The result of looking at all nodes.
struct PreflightReport {
  std::string table;
  std::vector<Finding> findings;
  PreflightNeeds needs;  ///< with the files of the checkpoints
  std::vector<ProbedNode> nodes;
  double seconds = 0;
};

/// Looks at the nodes of a job before anything is loaded: an actor on each gathers NodeFacts and
/// calls those of the others (probed_peers). `needs.checkpoints` give folders only; their files are
/// looked at here. One thread at a time.
class Preflight {
 public:
  explicit Preflight(PreflightNeeds needs) : needs_(std::move(needs)) {}

  /// Looks at a node that has just joined, without waiting (ClusterOptions::judge). Refused is one
  /// that could not take part whatever the others are.
  NodeVerdict look_at(Cluster& cluster, const JoinedNode& node);

  /// Ends the probes of a node on which look_at() has decided, and returns what they have found.
  ProbedNode take(std::size_t index);
  /// With the files of the checkpoints, once a node has been looked at.
  const PreflightNeeds& needs() const { return needs_; }

  /// Looks at the nodes that were not looked at before, but for those that join later, and at the
  /// links between all. Asks
  /// `keep_going` now and then. Errors: cancelled; those of starting actors. A node that does not
  /// answer is a finding. Call once.
  Result<PreflightReport> finish(Cluster& cluster, const KeepGoing& keep_going = nullptr);

 private:
  /// A node, and which of the agents that came for its place it was.
  struct Look {
    std::uint64_t arrival = 0;
    std::unique_ptr<NodeLook> look;
  };
  void look_at_own_checkpoints();
  const FactsRequest& request();
  /// Returns the fatal findings about one node alone, in one line; empty if there are none.
  std::string judge_alone(std::size_t index) const;
  Result<void> measure_links(const KeepGoing& keep_going);

  PreflightNeeds needs_;
  std::optional<FactsRequest> request_;
  std::vector<Look> looks_;  ///< by the node's index
};

/// "2 nodes looked at in 0.21 s".
std::string describe(const PreflightReport& report);

/// An error with a line for each finding that is fatal, if there is one.
Result<void> check_preflight(const PreflightReport& report);

/// The nodes whose links from `node` are measured: of up to 64 nodes all others, beginning with the
/// next, so that no two nodes begin with the same; of more those at distances 1, 2, 4 and so on.
std::vector<std::size_t> probed_peers(std::size_t node, std::size_t nodes);

}  // namespace troupe
