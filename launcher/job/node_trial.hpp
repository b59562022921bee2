#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "launcher/preflight/preflight.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/base/keep_going.hpp"

namespace troupe {

/// Judges nodes that come in place of lost ones as those at the start were: by Preflight, and where
/// checkpoints are staged, by whether they can be brought there.
class NodeTrial {
 public:
  /// `needs` as for Preflight. `keep_going` is asked while checkpoints are copied; false gives up.
  NodeTrial(PreflightNeeds needs, KeepGoing keep_going)
      : preflight_(std::move(needs)), keep_going_(std::move(keep_going)) {}

  /// The engine reads the checkpoints from these staged copies, in the order of the needs. Where
  /// checkpoints are staged, verdicts are pending before this. Any thread.
  void set_folders(std::vector<std::string> folders);

  /// For ClusterOptions::judge_replacement: on one thread. Copies the checkpoints before it
  /// welcomes a node without them.
  NodeVerdict judge(Cluster& cluster, const JoinedNode& node);
  /// False while it is not known where the checkpoints are staged.
  bool can_judge() const;

 private:
  /// Returns why the node cannot have them; empty if it has.
  std::string stage(Cluster& cluster, ProbedNode node);

  Preflight preflight_;
  const KeepGoing keep_going_;
  mutable std::mutex mutex_;
  std::optional<std::vector<std::string>> folders_;  ///< set by set_folders()
};

}  // namespace troupe
