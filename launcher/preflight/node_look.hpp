#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "actors/preflight/node_probe.hpp"
#include "launcher/preflight/findings.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/call/future.hpp"

namespace troupe {

/// Looks at one node by itself, without waiting: starts its probes, asks for its facts and reads
/// its clock. One thread at a time.
class NodeLook {
 public:
  /// Starts the probes.
  NodeLook(Cluster& cluster, const std::string& name, const std::string& address);

  /// Goes on with what has been answered, for which it waits at most `wait`; `request` is what the
  /// node is asked. True once all is known, or node().problem says why it is not.
  bool go_on(const FactsRequest& request, std::chrono::milliseconds wait);

  const ProbedNode& node() const { return node_; }
  ProbedNode& node() { return node_; }
  /// The actor that other nodes call, and the one that calls them; empty if the node has a problem.
  const ActorHandle<ProbeTarget>& target() const { return target_; }
  const ActorHandle<NodeProbe>& probe() const { return probe_; }
  /// Ends the probes.
  void leave() const;

 private:
  /// True if there is nothing more to wait for.
  bool begin_to_ask(const FactsRequest& request, std::chrono::milliseconds wait);
  bool take_answers(std::chrono::milliseconds wait);
  bool is_late();
  bool give_up(const Error& why);

  ProbedNode node_;
  Future<ActorHandle<ProbeTarget>> target_made_;
  Future<ActorHandle<NodeProbe>> probe_made_;
  ActorHandle<ProbeTarget> target_;
  ActorHandle<NodeProbe> probe_;
  Deadline deadline_;  ///< of the answers that are awaited
  /// How far the node's clock is ahead, in seconds, and the most that this may be off.
  struct ClockReading {
    double ahead = 0;
    double error = 0;
  };
  struct ClockReader;
  std::optional<Future<NodeFacts>> facts_;
  std::optional<Future<ClockReading>> clock_;
  bool is_done_ = false;
};

}  // namespace troupe
