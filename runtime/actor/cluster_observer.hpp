#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "runtime/actor/actor_registry.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/actor/cluster_insight.hpp"
#include "runtime/actor/log_places.hpp"
#include "runtime/actor/node_agents.hpp"
#include "runtime/security/job_secret.hpp"
#include "runtime/state/cluster_file.hpp"
#include "runtime/state/state_server.hpp"

namespace troupe {

/// Lets the cluster's user see it from outside (`troupe status`), end it and let nodes go:
/// publishes where the driver listens (ClusterFile) and answers there. See
/// ClusterOptions::is_observable.
class ClusterObserver {
 public:
  /// What is given outlives this object.
  ClusterObserver(const ClusterOptions& options, const JobKeys& keys, const LogPlaces& logs,
                  const ActorRegistry& registry, NodeAgents& agents, ClusterInsight& insight)
      : options_(options),
        keys_(keys),
        logs_(logs),
        registry_(registry),
        agents_(agents),
        insight_(insight) {}

  /// Begins, if it is wished; the agents have been started. What is in the way is a warning.
  void start(const std::string& job_id);
  /// See Cluster.
  void on_drain(Cluster::DrainNode drain);
  void on_join(Cluster::JoinHosts join);
  void tell_state(std::string state);
  /// Nobody finds the cluster any more.
  void hide() { published_.reset(); }
  /// Answers nobody any more. The agents have been stopped, and with them the links.
  void stop() { server_.stop(); }

 private:
  StateReply answer(const StateRequest& request) const;
  StateReply answer_to(const AskStatus& ask) const;
  StateReply answer_to(const AskNodes& ask) const;
  StateReply answer_to(const AskActors& ask) const { return registry_.actor_states(ask); }
  StateReply answer_to(const AskGroups& ask) const { return registry_.group_states(ask); }
  StateReply answer_to(const AskLog& ask) const;
  StateReply answer_to(const AskStop& ask) const;
  StateReply answer_to(const AskDrain& ask) const;
  StateReply answer_to(const AskJoin& ask) const;
  StateReply answer_to(const AskMetrics&) const { return MetricsReply{insight_.metrics_text()}; }
  StateReply answer_to(const AskLoads&) const { return LoadsReply{insight_.loads()}; }
  StateReply answer_to(const AskObjects& ask) const { return insight_.objects(ask); }
  StateReply answer_to(const AskStack& ask) const;
  StateReply answer_to(const AskTimeline& ask) const;
  /// The path of a log, and whose it is beside that.
  Result<LogPiece> log_of(const std::string& what) const;

  const ClusterOptions& options_;
  const JobKeys& keys_;
  const LogPlaces& logs_;
  const ActorRegistry& registry_;
  NodeAgents& agents_;
  ClusterInsight& insight_;
  mutable std::mutex changes_mutex_;  ///< of the next three
  Cluster::DrainNode drain_;
  Cluster::JoinHosts join_;
  std::string program_state_;
  StateServer server_{[this](const StateRequest& request) { return answer(request); }};
  std::optional<PublishedCluster> published_;
};

}  // namespace troupe
