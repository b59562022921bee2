#include "runtime/actor/cluster.hpp"

#include <atomic>
#include <filesystem>
#include <set>
#include <thread>

#include <unistd.h>

#include "runtime/actor/actor_cell.hpp"
#include "runtime/actor/actor_registry.hpp"
#include "runtime/actor/argument_limit.hpp"
#include "runtime/actor/cluster_observer.hpp"
#include "runtime/actor/node_agents.hpp"
#include "runtime/actor/restart_timer.hpp"
#include "runtime/call/network_transport.hpp"
#include "runtime/control/followers.hpp"
#include "runtime/node/regions.hpp"
#include "runtime/process/child_channel.hpp"
#include "runtime/security/plane_keys.hpp"

namespace troupe {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

class ClusterImpl;

/// The shared memory regions of the driver process; its actors use them too, and may outlive the
/// cluster.
struct LocalRegions {
  std::mutex mutex;
  Regions regions;
};

/// Tells threads that may outlive the cluster (a local actor that does not end) that it is gone.
struct Gate {
  std::recursive_mutex mutex;  ///< a spawn's callback may spawn again
  ClusterImpl* cluster = nullptr;
};

class ClusterImpl final : public Cluster {
 public:
  ClusterImpl(ClusterOptions options, const JobKeys& keys)
      : options_(std::move(options)),
        keys_(keys),
        is_local_(!options_.join && options_.starter->is_local()),
        logs_{options_.join ? "" : options_.log_folder, !is_local_},
        registry_(std::make_shared<ActorRegistry>(options_.nodes, options_.placement, logs_)),
        agents_(options_, logs_, agent_events()) {}
  ~ClusterImpl() override { shutdown(milliseconds(1000)); }

  Result<void> boot();

  WatchToken watch(const ActorAddress& actor, DownCallback callback) override {
    return services_->watches->watch(actor.id, std::move(callback));
  }
  Result<void> stop(const ActorAddress& actor, milliseconds timeout) override;
  Result<void> kill(const ActorAddress& actor) override;
  Result<PlacementGroup> create_placement_group(const PlacementGroupOptions& options) override {
    return registry_->create_placement_group(options);
  }
  Result<PlacementGroup> place_again(PlacementGroupId id) override;
  void start_lost_nodes() override { agents_.start_lost(); }
  Result<void> remove_placement_group(PlacementGroupId id) override;
  std::vector<PlacementGroup> placement_groups() const override {
    return registry_->placement_groups();
  }
  std::vector<ActorInfo> actors() const override { return registry_->actors(); }
  std::vector<NodeInfo> nodes() const override { return agents_.infos(); }
  std::weak_ptr<CallHub> hub() const override { return services_->hub; }
  void suspend(milliseconds timeout) override { agents_.suspend(timeout); }
  void resume() override { agents_.resume(); }
  void shutdown(milliseconds timeout) override;

 protected:
  void spawn_remote(const SpawnOptions& options, std::string type, Bytes arguments,
                    AddressCallback done) override;
  void spawn_here(const SpawnOptions& options, std::string type, LocalFactory make,
                  AddressCallback done) override;
  Result<ActorAddress> find_address(std::string_view name, std::string_view type) const override {
    return registry_->find(name, type);
  }

 private:
  Result<void> start_services();
  NodeAgents::Events agent_events();
  AgentBootstrap bootstrap_of(const std::string& node, const AgentReady& hello) const;
  void on_agent_message(std::size_t node, ControlMessage message);
  void follow(std::size_t node, const FollowActor& wish);
  void restart(ActorId actor);
  void spawn_owned(ActorId owner, const SpawnOptions& options, std::string type, Bytes arguments,
                   const AddressCallback& done);
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
  /// Returns the actors that have not ended in time.
  std::map<ActorId, std::shared_ptr<ActorCell>> stop_local_actors(milliseconds timeout);

  ClusterOptions options_;
  const JobKeys keys_;
  const bool is_local_;  ///< nodes are children of this process
  const LogPlaces logs_;
  std::string job_id_;
  const std::shared_ptr<ActorRegistry> registry_;
  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  std::shared_ptr<HostServices> services_;
  std::shared_ptr<ActorCell> directory_;
  std::atomic<bool> shutting_down_ = false;

  std::mutex mutex_;
  std::map<ActorId, std::shared_ptr<ActorCell>> local_;
  std::mutex followers_mutex_;
  Followers<std::size_t> followers_;  ///< nodes
  std::mutex spawning_;  ///< agents get actors in the order in which they were admitted
  RestartTimer restarts_{[this](ActorId actor) { restart(actor); }};
  NodeAgents agents_;  ///< last: its events use the members above
  ClusterObserver observer_{options_, keys_, logs_, *registry_, agents_};
};

Result<void> ClusterImpl::boot() {
  std::array<std::byte, 8> id{};
  TROUPE_CHECK(random_bytes(id));
  job_id_ = to_hex(id);
  gate_->cluster = this;
  if (!options_.log_folder.empty()) {
    std::error_code error;
    std::filesystem::create_directories(options_.log_folder, error);
    if (error) {
      return fail(ErrorCode::io, "cannot make the log folder {}: {}", options_.log_folder,
                  error.message());
    }
  }
  TROUPE_CHECK(start_services());
  TROUPE_CHECK(agents_.start());
  observer_.start(job_id_);
  return agents_.wait();
}

Result<void> ClusterImpl::start_services() {
  TROUPE_TRY(const std::string name, draw_call_name(job_id_));
  TROUPE_TRY(auto transport, make_network_transport(call_keys(keys_, name),
                                                    {job_id_, options_.address, options_.ports}));
  TROUPE_TRY(auto hub, CallHub::create(std::move(transport), options_.calls));
  TROUPE_TRY(auto directory,
             registry_->admit_local({}, std::string(Directory::actor_type), ::getpid()));
  directory.endpoint = hub->endpoint();
  const auto regions = std::make_shared<LocalRegions>();
  const auto watches = std::make_shared<WatchTable>(
      [registry = registry_](ActorId actor) { return registry->down_of(actor); });
  services_ = std::make_shared<HostServices>(HostServices{
      "driver", options_.address, options_.ports, options_.job_folder, "",
      [keys = keys_](const ActorAddress& asker, const ChannelScope& scope) {
        return channel_key(keys, asker.name, scope);
      },
      hub, watches, ActorHandle<Directory>(directory, hub),
      [local = regions](std::string_view name, std::size_t bytes) {
        std::lock_guard lock(local->mutex);
        return local->regions.open(name, bytes);
      },
      [local = regions](std::string_view prefix) -> Result<void> {
        std::lock_guard lock(local->mutex);
        local->regions.release(prefix);
        return {};
      },
      [gate = gate_](ActorId owner, const SpawnOptions& options, std::string type, Bytes arguments,
                     const AddressCallback& done) {
        std::unique_lock lock(gate->mutex);
        if (gate->cluster == nullptr) {
          lock.unlock();
          return done(fail(ErrorCode::cancelled, "the cluster is shutting down"));
        }
        gate->cluster->spawn_owned(owner, options, std::move(type), std::move(arguments), done);
      },
      [gate = gate_](ActorId owner, ActorId actor) {
        std::lock_guard lock(gate->mutex);
        if (gate->cluster != nullptr) gate->cluster->stop_owned(owner, actor);
      }});
  Promise<void> made;
  TROUPE_TRY(directory_,
             ActorCell::start(
                 directory, {}, services_,
                 [registry = registry_](ActorContext&) -> Result<std::unique_ptr<ActorObject>> {
                   return std::unique_ptr<ActorObject>(
                       std::make_unique<actor_detail::TypedActor<Directory>>(
                           std::make_unique<Directory>(registry)));
                 },
                 {[made](Result<void> result) { made.complete(std::move(result)); },
                  [](bool, const std::string&) {}}));
  return made.future().get(milliseconds(5000));
}

NodeAgents::Events ClusterImpl::agent_events() {
  return {[this](const std::string& node, const AgentReady& hello) {
            return bootstrap_of(node, hello);
          },
          [this](std::size_t node, const std::string& name) { registry_->name_node(node, name); },
          [this](std::size_t node, ControlMessage message) {
            on_agent_message(node, std::move(message));
          },
          options_.judge ? [this](const JoinedNode& node) { return options_.judge(*this, node); }
                         : std::function<NodeVerdict(const JoinedNode&)>(),
          [this](std::size_t node, const std::string& how) {
            {
              std::lock_guard lock(followers_mutex_);
              followers_.remove(node);
            }
            publish(registry_->on_node_lost(node, how));
          }};
}

AgentBootstrap ClusterImpl::bootstrap_of(const std::string& node, const AgentReady& hello) const {
  AgentBootstrap bootstrap;
  std::ranges::copy(keys_.secret(), bootstrap.secret.bytes.begin());
  bootstrap.job_id = job_id_;
  // Another host's agent writes to its stderr, which its starter, if it has one, brings here.
  if (is_local_) bootstrap.log_folder = options_.log_folder;
  auto& process = bootstrap.processes;
  process.locality = is_local_ ? job_id_ : node;
  if (!options_.address.empty()) process.address = hello.address;
  process.ports = options_.ports;
  process.process_name = "agent-" + node;
  process.node = node;
  process.job_folder = options_.job_folder;
  process.log_path = is_local_ ? logs_.of_agent(node) : log::to_stderr;
  process.log_level = static_cast<std::int32_t>(options_.log_level);
  process.directory = services_->directory.address();
  process.credits = options_.calls.credits;
  process.credit_bytes = options_.calls.credit_bytes;
  process.credit_timeout_ms = options_.calls.credit_timeout.count();
  process.cause_grace_ms = options_.calls.cause_grace.count();
  return bootstrap;
}

void ClusterImpl::on_agent_message(std::size_t node, ControlMessage message) {
  if (!registry_->is_about_node(message, node)) {
    return log::error("the agent of node '{}' speaks for what is not on its node",
                      agents_.infos()[node].spec.name);
  }
  if (const auto* wish = std::get_if<FollowActor>(&message)) follow(node, *wish);
  if (const auto* started = std::get_if<ActorStarted>(&message)) {
    if (const auto again = registry_->on_started(*started)) publish(*again);
  }
  if (const auto* failed = std::get_if<ActorFailed>(&message)) {
    publish(registry_->on_failed(*failed));
  }
  if (auto* request = std::get_if<SpawnRequest>(&message)) spawn_for(node, std::move(*request));
  if (const auto* stop = std::get_if<StopOwned>(&message)) {
    stop_owned(stop->owner, stop->actor);
  }
  if (const auto* ended = std::get_if<ActorEnded>(&message)) publish(registry_->on_ended(*ended));
  if (const auto* process = std::get_if<ProcessEnded>(&message))
    publish(registry_->on_process_ended(*process));
}

/// The node's agent is to hear of the actor's end, and where it is if it wishes.
void ClusterImpl::follow(std::size_t node, const FollowActor& wish) {
  bool is_there = false;
  {
    std::lock_guard lock(followers_mutex_);
    is_there = registry_->has(wish.actor);  // publish() comes after it has left the registry
    if (is_there) followers_.add(wish.actor, node);
  }
  if (!is_there) {
    const auto down = registry_->down_of(wish.actor);
    if (down) (void)agents_.send(node, ActorGone{wish.actor, false, encode(*down)});
    return;
  }
  if (!wish.wants_address) return;
  const auto address = registry_->address_of(wish.actor);
  if (address) (void)agents_.send(node, ActorMoved{*address});
}

/// Reports the ends to those who follow the actors, and ends processes without actors.
void ClusterImpl::publish(const std::vector<ActorDown>& downs) {
  for (const auto& down : downs) {
    services_->report_end(down);
    std::set<std::size_t> nodes;
    {
      std::lock_guard lock(followers_mutex_);
      nodes = down.restarts ? followers_.of(down.id) : followers_.take(down.id);
    }
    if (nodes.empty()) continue;
    const ActorGone gone{down.id, down.restarts, encode(down)};
    for (const std::size_t node : nodes) (void)agents_.send(node, gone);
  }
  for (const auto& [actor, due] : registry_->take_restarts()) restarts_.add(actor, due);
  for (const ActorId orphan : registry_->take_orphans()) begin_stop(orphan);
  for (const auto& idle : registry_->take_idle_processes()) {
    (void)agents_.send(idle.node, StopProcess{idle.process, false});
  }
}

void ClusterImpl::begin_stop(ActorId actor) {
  publish(registry_->forbid_restarts(actor));
  const auto place = registry_->process_of(actor);
  if (!place.ok()) return;
  if (registry_->close_process_of(actor)) {
    (void)agents_.send(place->node, StopProcess{place->process, false});
  } else {
    (void)agents_.send(place->node, StopActor{place->process, actor});
  }
}

void ClusterImpl::spawn_for(std::size_t node, SpawnRequest request) {
  const auto answer = [this, node, number = request.request,
                       process = request.process](const Result<ActorAddress>& address) {
    SpawnReply reply{.request = number, .process = process, .ok = address.ok()};
    if (address.ok()) {
      reply.actor = *address;
    } else {
      reply.code = address.error().code;
      reply.message = address.error().message;
    }
    (void)agents_.send(node, reply);
  };
  const auto options = decode<SpawnOptions>(request.options);
  if (!options.ok()) return answer(options.error());
  spawn_owned(request.owner, *options, std::move(request.type), std::move(request.arguments),
              answer);
}

/// Reports where an actor is that was started again.
void ClusterImpl::publish(const ActorAddress& again) {
  log::info("actor '{}' is there again (incarnation {})", again.name, again.incarnation);
  services_->hub->mark_moved(again);
  std::set<std::size_t> nodes;
  {
    std::lock_guard lock(followers_mutex_);
    nodes = followers_.of(again.id);
  }
  for (const std::size_t node : nodes) (void)agents_.send(node, ActorMoved{again});
}

void ClusterImpl::restart(ActorId actor) {
  Result<void> sent;
  {
    std::lock_guard lock(spawning_);
    auto again = registry_->admit_again(actor);
    if (!again.ok() && again.error().code == ErrorCode::not_found) return;
    sent = again.ok() ? send_start(again->admission, std::move(again->arguments)) : again.error();
  }
  if (sent.ok()) return;
  publish(registry_->on_failed({actor, sent.error().code, sent.error().message}));
}

Result<void> ClusterImpl::send_start(const ActorRegistry::Admission& admission, Bytes arguments) {
  return agents_.send(admission.node,
                      StartActor{admission.process, admission.starts_process,
                                 admission.process_name, admission.address, std::move(arguments),
                                 admission.devices, admission.hides_other_devices});
}

void ClusterImpl::spawn_remote(const SpawnOptions& options, std::string type, Bytes arguments,
                               AddressCallback done) {
  spawn_owned(0, options, std::move(type), std::move(arguments), done);
}

void ClusterImpl::spawn_owned(ActorId owner, const SpawnOptions& options, std::string type,
                              Bytes arguments, const AddressCallback& done) {
  if (shutting_down_) return done(fail(ErrorCode::cancelled, "the cluster is shutting down"));
  if (auto fits = check_argument_bytes(type, arguments); !fits.ok()) {
    return done(std::move(fits).error());
  }
  const auto started = [this, done](Result<ActorAddress> address) {
    if (address.ok() && address->is_restartable) services_->hub->mark_moved(*address);
    done(std::move(address));
  };
  std::optional<ActorFailed> unsent;
  const auto refused = [&]() -> std::optional<Error> {
    std::lock_guard lock(spawning_);
    auto admitted = registry_->admit(options, type, arguments, started, owner);
    if (!admitted.ok()) return std::move(admitted).error();
    const auto sent = send_start(*admitted, std::move(arguments));
    if (!sent.ok()) unsent = {admitted->address.id, sent.error().code, sent.error().message};
    return std::nullopt;
  }();
  if (refused) done(*refused);
  if (!unsent) return;
  publish(registry_->on_failed(*unsent));
}

void ClusterImpl::spawn_here(const SpawnOptions& options, std::string type, LocalFactory make,
                             AddressCallback done) {
  if (shutting_down_) return done(fail(ErrorCode::cancelled, "the cluster is shutting down"));
  auto admitted = registry_->admit_local(options, type, ::getpid());
  if (!admitted.ok()) return done(admitted.error());
  admitted->endpoint = services_->hub->endpoint();
  const ActorId id = admitted->id;
  const auto forget = [gate = gate_, id](const std::vector<ActorDown>& downs) {
    std::lock_guard lock(gate->mutex);
    if (gate->cluster == nullptr) return;
    gate->cluster->publish(downs);
    std::lock_guard local_lock(gate->cluster->mutex_);
    gate->cluster->local_.erase(id);
  };
  ActorCell::Events events;
  events.on_made = [registry = registry_, address = *admitted, done,
                    forget](const Result<void>& made) {
    if (made.ok()) {
      (void)registry->on_started({address.id, address.endpoint, ::getpid()});
      return done(address);
    }
    forget(registry->on_failed({address.id, made.error().code, made.error().message}));
    done(made.error());
  };
  events.on_ended = [registry = registry_, id, forget](bool exited, const std::string& reason) {
    forget(registry->on_ended({id, exited, reason}));
  };
  std::unique_lock lock(mutex_);
  auto cell = ActorCell::start(*admitted, {}, services_, std::move(make), std::move(events));
  if (cell.ok()) {
    local_[id] = *std::move(cell);
    return;
  }
  lock.unlock();
  (void)registry_->on_failed({id, cell.error().code, cell.error().message});
  done(cell.error());
}

Result<void> ClusterImpl::stop(const ActorAddress& actor, milliseconds timeout) {
  auto down = std::make_shared<Promise<ActorDown>>();
  const auto token = watch(actor, [down](const ActorDown& end) {
    if (!end.restarts) down->complete(end);
  });
  publish(registry_->forbid_restarts(actor.id));
  std::shared_ptr<ActorCell> cell;
  {
    std::lock_guard lock(mutex_);
    if (const auto found = local_.find(actor.id); found != local_.end()) cell = found->second;
  }
  const auto place = registry_->process_of(actor.id);
  if (cell) {
    cell->stop();
  } else if (place.ok()) {
    (void)agents_.send(place->node, StopActor{place->process, actor.id});
  } else if (!registry_->down_of(actor.id)) {
    return fail(ErrorCode::not_found, "there is no actor {}", actor.id);
  }
  if (down->future().wait(timeout)) return {};
  if (place.ok()) (void)agents_.send(place->node, StopProcess{place->process, true});
  return fail(ErrorCode::timeout, "actor '{}' did not end within {} ms{}", actor.name,
              timeout.count(), place.ok() ? "; its process was killed" : "");
}

Result<void> ClusterImpl::kill(const ActorAddress& actor) {
  TROUPE_TRY(const auto place, registry_->process_of(actor.id));
  (void)agents_.send(place.node, StopProcess{place.process, true});
  return {};
}

Result<PlacementGroup> ClusterImpl::place_again(PlacementGroupId id) {
  if (shutting_down_) return fail(ErrorCode::cancelled, "the cluster is shutting down");
  auto placed = registry_->place_again(id);
  publish(std::vector<ActorDown>());  // for the restarts that it allows
  return placed;
}

Result<void> ClusterImpl::remove_placement_group(PlacementGroupId id) {
  std::lock_guard lock(spawning_);  // an agent knows each process before it is to kill it
  TROUPE_TRY(const auto doomed, registry_->remove_placement_group(id));
  for (const auto& place : doomed) {
    (void)agents_.send(place.node, StopProcess{place.process, true});
  }
  return {};
}

std::map<ActorId, std::shared_ptr<ActorCell>> ClusterImpl::stop_local_actors(milliseconds timeout) {
  std::map<ActorId, std::shared_ptr<ActorCell>> cells;
  {
    std::lock_guard lock(mutex_);
    cells = local_;
  }
  for (auto& [id, cell] : cells) cell->stop();
  const auto deadline = Clock::now() + timeout;
  std::erase_if(cells, [&](const auto& entry) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    return entry.second->wait_until_over(left);
  });
  return cells;
}

void ClusterImpl::shutdown(milliseconds timeout) {
  if (shutting_down_.exchange(true)) return;
  restarts_.stop();
  observer_.hide();
  const auto busy = stop_local_actors(timeout);
  agents_.stop(timeout);
  observer_.stop();
  for (std::size_t i = 0; i < agents_.size(); ++i)
    (void)registry_->on_node_lost(i, "was shut down");
  {
    std::lock_guard lock(gate_->mutex);
    gate_->cluster = nullptr;
  }
  if (!services_) return;
  if (directory_) {
    directory_->stop();
    (void)directory_->wait_until_over(milliseconds(1000));
  }
  services_->watches->stop();
  services_->hub->stop();
  // Callers that still wait get an error now.
  const auto deadline = Clock::now() + milliseconds(500);
  for (const auto& [id, cell] : busy) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    if (!cell->wait_until_over(left))
      log::error("local actor {} does not end; it is left behind", id);
  }
}

}  // namespace

Result<std::unique_ptr<Cluster>> Cluster::start(ClusterOptions options) {
  if (options.nodes.empty()) {
    options.nodes.push_back({"node0", static_cast<int>(std::thread::hardware_concurrency()), {}});
  }
  if (!options.log_folder.empty()) {
    options.log_folder = std::filesystem::absolute(options.log_folder).lexically_normal().string();
  }
  if (!options.starter) options.starter = std::make_shared<LocalNodeStarter>();
  forbid_dumps();
  TROUPE_TRY(auto keys, JobKeys::generate());
  auto cluster = std::make_unique<ClusterImpl>(std::move(options), keys);
  TROUPE_CHECK(cluster->boot());
  return std::unique_ptr<Cluster>(std::move(cluster));
}

}  // namespace troupe
