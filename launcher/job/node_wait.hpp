#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "launcher/config/cluster_config.hpp"
#include "runtime/actor/cluster.hpp"

namespace troupe {

/// Tells a person what a job's nodes wait for: copies of the program, and with cluster.launch: join
/// the command that each node is to run, how many have come, and which were refused.
class NodeWait {
 public:
  /// `tell` shows a line.
  NodeWait(const Config& config, std::function<void(const std::string&)> tell);

  /// Takes the state in, and tells what is new. Returns it in a few words, "2 of 4 nodes have
  /// joined"; empty if nothing is copied and nodes are not awaited by a person.
  std::string update(const ClusterWait& state);
  /// The command that each node is to run, once update() has been called; empty unless nodes join.
  const std::string& join_command() const { return join_command_; }

 private:
  const Config::Cluster& config_;
  const std::function<void(const std::string&)> tell_;
  std::string join_command_;
  bool has_told_copies_ = false;
  std::size_t told_ = 0;  ///< nodes
  std::size_t told_refused_ = 0;
};

}  // namespace troupe
