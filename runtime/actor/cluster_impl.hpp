#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/actor/actor_cell.hpp"
#include "runtime/actor/actor_registry.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/actor/cluster_insight.hpp"
#include "runtime/actor/cluster_observer.hpp"
#include "runtime/actor/forwarded_logs.hpp"
#include "runtime/actor/node_agents.hpp"
#include "runtime/actor/restart_timer.hpp"
#include "runtime/control/followers.hpp"
#include "runtime/security/plane_keys.hpp"
#include "runtime/task/task_service.hpp"

namespace troupe {

class ClusterImpl;

/// Whether this program can have a cluster: init() was called, and no two actor classes share a
/// name.
Result<void> check_program();

/// Tells threads that may outlive the cluster (a local actor that does not end) that it is gone.
struct ClusterGate {
  std::recursive_mutex mutex;  ///< a spawn's callback may spawn again
  ClusterImpl* cluster = nullptr;
};

/// The one implementation of Cluster: its start and its end are in cluster.cpp, what it does for
/// actors in cluster_actors.cpp.
class ClusterImpl final : public Cluster {
 public:
  ClusterImpl(ClusterOptions options, const JobKeys& keys)
      : options_(std::move(options)),
        keys_(keys),
        is_local_(!options_.join && options_.starter->is_local()),
        logs_{options_.join ? "" : options_.log_folder, !is_local_},
        registry_(std::make_shared<ActorRegistry>(options_.nodes, options_.placement, logs_,
                                                  options_.name_space)),
        agents_(options_, logs_, agent_events()) {}
  ~ClusterImpl() override { shutdown(std::chrono::milliseconds(1000)); }

  Result<void> boot();

  WatchToken watch(const ActorAddress& actor, DownCallback callback) override {
    return services_->watches->watch(actor.id, std::move(callback));
  }
  Result<void> stop(const ActorAddress& actor, std::chrono::milliseconds timeout) override;
  Result<void> kill(const ActorAddress& actor) override;
  Result<PlacementGroup> create_placement_group(const PlacementGroupOptions& options) override {
    return registry_->create_placement_group(options);
  }
  Result<PlacementGroup> place_again(PlacementGroupId id) override;
  void start_lost_nodes() override { agents_.start_lost(); }
  std::vector<std::string> refused_nodes() const override { return agents_.refused(); }
  Result<void> remove_placement_group(PlacementGroupId id) override;
  std::vector<PlacementGroup> placement_groups() const override {
    return registry_->placement_groups();
  }
  std::vector<ActorInfo> actors() const override { return registry_->actors(); }
  std::vector<NodeInfo> nodes() const override { return agents_.infos(); }
  Result<void> close_node(const std::string& node) override;
  Result<void> dismiss_node(const std::string& node) override;
  void on_drain(DrainNode drain) override { observer_.on_drain(std::move(drain)); }
  Result<void> start_node(const std::string& node) override { return agents_.start_node(node); }
  void on_join(JoinHosts join) override { observer_.on_join(std::move(join)); }

  void tell_state(std::string state) override { observer_.tell_state(std::move(state)); }
  std::weak_ptr<CallHub> hub() const override { return services_->hub; }
  MetricsRegistry& metrics() const override { return services_->hub->observer()->metrics(); }
  std::string metrics_text() override { return insight_.metrics_text(); }
  void suspend(std::chrono::milliseconds timeout) override { agents_.suspend(timeout); }
  void resume() override { agents_.resume(); }
  void shutdown(std::chrono::milliseconds timeout) override;
  ObjectStore& objects() override { return *services_->objects; }

 protected:
  void spawn_remote(const SpawnOptions& options, std::string type, EncodedArguments arguments,
                    AddressCallback done) override;
  void spawn_here(const SpawnOptions& options, std::string type, LocalFactory make,
                  AddressCallback done) override;
  Result<ActorAddress> find_address(std::string_view name, std::string_view name_space,
                                    std::string_view type) const override {
    return registry_->find(name, name_space, type);
  }
  const SendTask& task_sender() const override { return services_->submit_task; }

 private:
  using LocalActors = std::unordered_map<ActorId, std::shared_ptr<ActorCell>>;

  Result<void> start_services();
  std::shared_ptr<TaskService> start_tasks(const std::shared_ptr<CallHub>& hub);
  void start_task_worker(const TaskScheduler::Orders::Start& start, TaskService::OnStarted done);
  void stop_task_worker(const ActorAddress& worker, bool kill);
  Result<void> start_objects(const CallKeys& keys);
  std::string spill_folder() const {
    return options_.object_spill_folder.empty() ? options_.job_folder
                                                : options_.object_spill_folder;
  }
  NodeAgents::Events agent_events();
  AgentBootstrap bootstrap_of(const std::string& node, const AgentReady& hello) const;
  void on_agent_message(std::size_t node, ControlMessage message);
  void follow(std::size_t node, const FollowActor& wish);
  void tell_stores_of_lost(std::size_t node, const std::string& how);
  void restart(const DueRestart& due);
  void spawn_owned(ActorId owner, const SpawnOptions& options, std::string type,
                   EncodedArguments arguments, const ActorRegistry::AddressCallback& done);
  /// For the actors of this process.
  std::shared_ptr<const ActorCell::Events> local_events();
  static void forget_local(const std::shared_ptr<ClusterGate>& gate, ActorId id,
                           const std::vector<ActorDown>& downs);
  void spawn_for(std::size_t node, SpawnRequest request);
  /// Ends the actor if it is the owner's.
  void stop_owned(ActorId owner, ActorId actor) {
    if (registry_->owns(owner, actor)) begin_stop(actor);
  }
  /// Has an actor end after its method; a process of its own ends with it, in time.
  void begin_stop(ActorId actor);
  Result<void> send_start(const ActorRegistry::Admission& admission, Bytes arguments);
  void publish(const std::vector<ActorDown>& downs);
  void publish(const ActorAddress& again);
  /// Shows what an actor's process has printed.
  void show(std::size_t node, const LogLines& lines);
  /// Tells of lines that have come again; all of them if `is_end`.
  void show_repeated(bool is_end);
  /// Returns the actors that have not ended in time.
  LocalActors stop_local_actors(std::chrono::milliseconds timeout);

  ClusterOptions options_;
  const JobKeys keys_;
  const bool is_local_;  ///< nodes are children of this process
  const LogPlaces logs_;
  std::string job_id_;
  const std::shared_ptr<ActorRegistry> registry_;
  const std::shared_ptr<ClusterGate> gate_ = std::make_shared<ClusterGate>();
  std::shared_ptr<HostServices> services_;
  std::shared_ptr<TaskService> tasks_;
  std::shared_ptr<ActorCell> directory_;
  std::atomic<bool> shutting_down_ = false;

  std::mutex mutex_;
  LocalActors local_;
  const std::shared_ptr<const ActorCell::Events> local_events_ = local_events();
  std::mutex followers_mutex_;
  Followers<std::size_t> followers_;  ///< nodes
  std::mutex spawning_;  ///< agents get actors in the order in which they were admitted
  RestartTimer restarts_{[this](const DueRestart& due) { restart(due); }};
  std::mutex shown_mutex_;
  ForwardedLogs shown_;  ///< by options_.forward_logs
  NodeInquiries inquiries_{
      [this](std::size_t node, const AskProcesses& ask) { return agents_.send(node, ask); }};
  NodeAgents agents_;  ///< its events use the members above
  ClusterInsight insight_{*registry_, agents_, inquiries_};
  ClusterObserver observer_{options_, keys_, logs_, *registry_, agents_, insight_};
};

}  // namespace troupe
