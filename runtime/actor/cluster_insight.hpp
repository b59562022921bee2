#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/actor/actor_registry.hpp"
#include "runtime/actor/cluster_metrics.hpp"
#include "runtime/actor/node_agents.hpp"
#include "runtime/actor/node_inquiries.hpp"
#include "runtime/call/call_observer.hpp"

namespace troupe {

class TaskService;

/// What the driver finds out about the processes of its cluster by asking them: metrics, loads,
/// stacks, recorded calls. Callable from any thread; what asks waits for the answers.
class ClusterInsight {
 public:
  /// What is given outlives this object.
  ClusterInsight(const ActorRegistry& registry, const NodeAgents& agents, NodeInquiries& inquiries)
      : registry_(registry), agents_(agents), inquiries_(inquiries) {}

  /// All are of the driver's process. Before all others.
  void begin(std::shared_ptr<CallObserver> own, std::shared_ptr<ObjectStore> objects,
             std::shared_ptr<TaskService> tasks) {
    own_ = std::move(own);
    objects_ = std::move(objects);
    tasks_ = std::move(tasks);
  }

  /// A node has answered, or a process of it has said its last words.
  void take(std::size_t node, NodeReport report);
  void count_end(const ActorDown& down);
  void count_restart(const ActorAddress& again);

  /// See Cluster::metrics_text.
  std::string metrics_text();
  /// Of all actors whose processes answer, by id.
  std::vector<ActorLoadState> loads();
  /// The next objects of all processes that answer, by id.
  ObjectsReply objects(const AskObjects& ask);
  /// The stacks of the process of the actor with this name or id. Errors: not_found, and those of
  /// process_stack.
  Result<StackReply> stack(std::string_view actor);
  /// Lets all processes that there are record calls, for at most `limit`.
  std::vector<TimelinePlace> start_timeline(std::chrono::milliseconds limit);
  void stop_timeline();
  /// What a process has recorded. Errors: not_found; timed_out if it does not answer.
  Result<Timeline> take_timeline(const std::string& node, ProcessId process);

 private:
  std::vector<std::size_t> living_nodes() const;

  const ActorRegistry& registry_;
  const NodeAgents& agents_;
  NodeInquiries& inquiries_;
  std::shared_ptr<CallObserver> own_;
  std::shared_ptr<ObjectStore> objects_;
  std::shared_ptr<TaskService> tasks_;
  std::mutex round_;  ///< one asks for metrics at a time
  std::mutex metrics_mutex_;
  ClusterMetrics metrics_;
};

}  // namespace troupe
