#include "runtime/actor/cluster.hpp"

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include <unistd.h>

#include "runtime/actor/actor_cell.hpp"
#include "runtime/actor/actor_registry.hpp"
#include "runtime/actor/node_keeper.hpp"
#include "runtime/call/network_transport.hpp"
#include "runtime/control/control_plane.hpp"
#include "runtime/node/regions.hpp"
#include "runtime/process/child_channel.hpp"
#include "runtime/security/plane_keys.hpp"

namespace troupe {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

class ClusterImpl;

/// The last line of a log, which may say why its process ended; empty if there is none.
std::string last_line(const std::string& path) {
  constexpr std::size_t longest = 300;
  std::ifstream file(path);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) last = std::move(line);
  }
  return last.substr(0, longest);
}

/// The agent forwards arguments in one message, together with names and numbers.
constexpr std::size_t max_argument_bytes = ChildChannel::max_message_bytes - (std::size_t{1} << 20);

/// The shared memory regions of the driver process; its actors use them too, and may outlive the
/// cluster.
struct LocalRegions {
  std::mutex mutex;
  Regions regions;
};

constexpr const char* loopback = "127.0.0.1";

/// Tells threads that may outlive the cluster (a local actor that does not end) that it is gone.
struct Gate {
  std::mutex mutex;
  ClusterImpl* cluster = nullptr;
};

class ClusterImpl final : public Cluster {
 public:
  ClusterImpl(ClusterOptions options, const JobKeys& keys)
      : options_(std::move(options)),
        keys_(keys),
        registry_(std::make_shared<ActorRegistry>(
            options_.nodes, options_.placement,
            LogPlaces{options_.log_folder, !options_.starter->is_local()})) {}
  ~ClusterImpl() override { shutdown(milliseconds(1000)); }

  Result<void> boot();

  WatchToken watch(const ActorAddress& actor, DownCallback callback) override {
    return services_->watches->watch(actor.id, std::move(callback));
  }
  Result<void> stop(const ActorAddress& actor, milliseconds timeout) override;
  Result<void> kill(const ActorAddress& actor) override;
  std::vector<ActorInfo> actors() const override { return registry_->actors(); }
  std::vector<NodeInfo> nodes() const override;
  std::weak_ptr<CallHub> hub() const override { return services_->hub; }
  void suspend(milliseconds timeout) override;
  void resume() override;
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
  Result<void> start_agents();
  std::string agent_log_path(const std::string& node) const;
  AgentBootstrap bootstrap_of(const std::string& node, const AgentReady& ready) const;
  void on_agent_ready(AgentKey agent, const AgentReady& ready);
  Result<void> wait_for_agents();
  void on_agent_message(AgentKey agent, ControlMessage message);
  void on_agent_lost(AgentKey agent, const Error& why);
  void on_agent_refused(const std::string& node, const Error& why);
  void on_agent_process_ended(std::size_t node, const std::string& how);
  void publish(const std::vector<ActorDown>& downs);
  Result<void> send_to_node(std::size_t node, const ControlMessage& message);
  /// Returns the actors that have not ended in time.
  std::map<ActorId, std::shared_ptr<ActorCell>> stop_local_actors(milliseconds timeout);
  void stop_agents(milliseconds timeout);

  ClusterOptions options_;
  const JobKeys keys_;
  std::string job_id_;
  const std::shared_ptr<ActorRegistry> registry_;
  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  std::shared_ptr<HostServices> services_;
  std::shared_ptr<ActorCell> directory_;
  std::unique_ptr<ControlServer> control_;
  std::atomic<bool> shutting_down_ = false;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  struct Node {
    std::unique_ptr<NodeKeeper> keeper;
    AgentKey agent = 0;  ///< 0 until it has reported, and after it is lost
    int agent_pid = 0;
    std::string host;
    std::string address;
    bool ready = false;
    bool over = false;
    bool suspended = false;
    std::string how;      ///< how it ended
    std::string refused;  ///< why its agent was turned away
  };
  Result<void> has_joined(const Node& node, const std::string& name) const;
  std::vector<Node> nodes_;
  std::map<ActorId, std::shared_ptr<ActorCell>> local_;
  std::mutex spawning_;  ///< agents get actors in the order in which they were admitted
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
  TROUPE_CHECK(start_agents());
  return wait_for_agents();
}

Result<void> ClusterImpl::start_services() {
  TROUPE_TRY(const std::string name, draw_call_name(job_id_));
  TROUPE_TRY(auto transport,
             make_network_transport(call_keys(keys_, name), {job_id_, options_.address}));
  TROUPE_TRY(auto hub, CallHub::create(std::move(transport), options_.calls));
  TROUPE_TRY(auto directory,
             registry_->admit_local({}, std::string(Directory::actor_type), ::getpid()));
  directory.endpoint = hub->endpoint();
  const auto regions = std::make_shared<LocalRegions>();
  services_ = std::make_shared<HostServices>(
      HostServices{"driver", options_.address, options_.job_folder, "",
                   [keys = keys_](const ActorAddress& asker, const ChannelScope& scope) {
                     return channel_key(keys, asker.name, scope);
                   },
                   hub, std::make_shared<WatchTable>(), ActorHandle<Directory>(directory, hub),
                   [local = regions](std::string_view name, std::size_t bytes) {
                     std::lock_guard lock(local->mutex);
                     return local->regions.open(name, bytes);
                   },
                   [local = regions](std::string_view prefix) -> Result<void> {
                     std::lock_guard lock(local->mutex);
                     local->regions.release(prefix);
                     return {};
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

Result<void> ClusterImpl::start_agents() {
  if (options_.address.empty() && !options_.starter->is_local()) {
    return fail(ErrorCode::invalid_argument,
                "nodes of other hosts need an address of this process to come to");
  }
  const std::string address = options_.address.empty() ? loopback : options_.address;
  nodes_.resize(options_.nodes.size());
  TROUPE_TRY(control_,
             ControlServer::start(
                 address, {[this](AgentKey agent, ControlMessage message) {
                             on_agent_message(agent, std::move(message));
                           },
                           [this](AgentKey agent, const Error& why) { on_agent_lost(agent, why); },
                           [this](const std::string& node, const Error& why) {
                             on_agent_refused(node, why);
                           }}));
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    NodeTicket ticket;
    ticket.node = options_.nodes[i].name;
    ticket.host = address;
    ticket.port = control_->port();
    TROUPE_CHECK(random_bytes(ticket.key.bytes));
    control_->admit(ticket.node, ticket.key.bytes);
    auto keeper = std::make_unique<NodeKeeper>(
        options_.starter, std::move(ticket), agent_log_path(options_.nodes[i].name),
        [this, i](const std::string& how) { on_agent_process_ended(i, how); });
    std::lock_guard lock(mutex_);
    nodes_[i].keeper = std::move(keeper);
  }
  return {};
}

std::string ClusterImpl::agent_log_path(const std::string& node) const {
  return options_.log_folder.empty() ? ""
                                     : fmt::format("{}/agent-{}.log", options_.log_folder, node);
}

AgentBootstrap ClusterImpl::bootstrap_of(const std::string& node, const AgentReady& ready) const {
  const bool is_local = options_.starter->is_local();
  AgentBootstrap bootstrap;
  std::ranges::copy(keys_.secret(), bootstrap.secret.bytes.begin());
  bootstrap.job_id = job_id_;
  // Another host's agent writes to its stderr, which its starter brings here.
  if (is_local) bootstrap.log_folder = options_.log_folder;
  auto& process = bootstrap.processes;
  process.locality = is_local ? job_id_ : node;
  if (!options_.address.empty()) process.address = ready.address;
  process.process_name = "agent-" + node;
  process.node = node;
  process.job_folder = options_.job_folder;
  process.log_path =
      is_local || options_.log_folder.empty() ? agent_log_path(node) : log::to_stderr;
  process.log_level = static_cast<std::int32_t>(options_.log_level);
  process.directory = services_->directory.address();
  process.credits = options_.calls.credits;
  process.credit_timeout_ms = options_.calls.credit_timeout.count();
  process.cause_grace_ms = options_.calls.cause_grace.count();
  return bootstrap;
}

Result<void> ClusterImpl::wait_for_agents() {
  std::unique_lock lock(mutex_);
  (void)wait_for(changed_, lock, options_.start_timeout, [this] {
    return std::ranges::all_of(
        nodes_, [](const Node& node) { return node.ready || node.over || !node.refused.empty(); });
  });
  std::optional<Error> failed;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    auto joined = has_joined(nodes_[i], options_.nodes[i].name);
    if (joined.ok()) continue;
    if (!failed) {
      failed = std::move(joined).error();
    } else {
      failed->message += "\n" + joined.error().message;
    }
  }
  if (failed) return *std::move(failed);
  return {};
}

/// Says in one line why a node's agent has not come.
Result<void> ClusterImpl::has_joined(const Node& node, const std::string& name) const {
  if (!node.refused.empty()) return Error{ErrorCode::unsupported, node.refused};
  const std::string log = agent_log_path(name);
  const std::string where = log.empty() ? "" : fmt::format("; its log is {}", log);
  if (node.over) {
    const std::string said = last_line(log);
    return fail(ErrorCode::peer_died, "the agent of node '{}' {} before it was ready{}{}", name,
                node.how, said.empty() ? "" : fmt::format(" ({})", said), where);
  }
  if (node.ready) return {};
  return fail(ErrorCode::timeout, "the agent of node '{}' has not reported within {} ms{}", name,
              options_.start_timeout.count(), where);
}

void ClusterImpl::on_agent_message(AgentKey agent, ControlMessage message) {
  if (const auto* ready = std::get_if<AgentReady>(&message)) return on_agent_ready(agent, *ready);
  std::size_t index = 0;
  {
    std::lock_guard lock(mutex_);
    const auto found = std::find_if(nodes_.begin(), nodes_.end(),
                                    [&](const Node& node) { return node.agent == agent; });
    if (found == nodes_.end()) return;  // it was given up
    index = static_cast<std::size_t>(found - nodes_.begin());
    if (std::holds_alternative<Suspended>(message)) {
      found->suspended = true;
      changed_.notify_all();
    }
  }
  if (!registry_->is_about_node(message, index)) {
    return log::error("the agent of node '{}' speaks for what is not on its node",
                      options_.nodes[index].name);
  }
  if (const auto* started = std::get_if<ActorStarted>(&message)) registry_->on_started(*started);
  if (const auto* failed = std::get_if<ActorFailed>(&message)) {
    registry_->on_failed(*failed);
    publish({});
  }
  if (const auto* ended = std::get_if<ActorEnded>(&message)) publish(registry_->on_ended(*ended));
  if (const auto* process = std::get_if<ProcessEnded>(&message))
    publish(registry_->on_process_ended(*process));
}

void ClusterImpl::on_agent_ready(AgentKey agent, const AgentReady& ready) {
  std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    if (options_.nodes[i].name != ready.node || node.ready || node.over || !control_) continue;
    if (!control_->send(agent, bootstrap_of(ready.node, ready)).ok()) return;  // it is lost
    node.agent = agent;
    node.agent_pid = ready.pid;
    node.host = ready.host;
    node.address = ready.address;
    node.ready = true;
    changed_.notify_all();
    log::debug("the agent of node '{}' has come from {} ({}), pid {}", ready.node, ready.host,
               ready.address, ready.pid);
  }
}

void ClusterImpl::on_agent_refused(const std::string& name, const Error& why) {
  log::error("{}", why.message);
  std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (options_.nodes[i].name == name && !nodes_[i].ready) nodes_[i].refused = why.message;
  }
  changed_.notify_all();
}

void ClusterImpl::on_agent_lost(AgentKey agent, const Error& why) {
  std::lock_guard lock(mutex_);
  for (auto& node : nodes_) {
    if (node.agent != agent) continue;
    if (!shutting_down_) log::info("an agent is lost: {}", why.message);
    node.agent = 0;
    if (!shutting_down_ && node.keeper) node.keeper->give_up();
  }
}

void ClusterImpl::on_agent_process_ended(std::size_t index, const std::string& how) {
  {
    std::lock_guard lock(mutex_);
    nodes_[index].over = true;
    nodes_[index].how = how;
    nodes_[index].agent = 0;
    changed_.notify_all();
  }
  if (shutting_down_) return;
  log::error("the agent of node '{}' {}", options_.nodes[index].name, how);
  publish(registry_->on_node_lost(index, how));
}

/// Reports the ends to everybody, and ends processes without actors.
void ClusterImpl::publish(const std::vector<ActorDown>& downs) {
  for (const auto& down : downs) {
    services_->hub->mark_down(down.id, down.message);
    services_->watches->on_down(down);
    const ActorGone gone{encode(down)};
    for (std::size_t i = 0; i < nodes_.size(); ++i) (void)send_to_node(i, gone);
  }
  for (const auto& idle : registry_->take_idle_processes()) {
    (void)send_to_node(idle.node, StopProcess{idle.process, false});
  }
}

Result<void> ClusterImpl::send_to_node(std::size_t node, const ControlMessage& message) {
  std::lock_guard lock(mutex_);
  const AgentKey agent = nodes_[node].agent;
  if (agent == 0 || !control_) return {};
  return control_->send(agent, message);
}

void ClusterImpl::suspend(milliseconds timeout) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) (void)send_to_node(i, Suspend{});
  std::unique_lock lock(mutex_);
  (void)wait_for(changed_, lock, timeout, [this] {
    return std::all_of(nodes_.begin(), nodes_.end(),
                       [](const Node& node) { return node.agent == 0 || node.suspended; });
  });
}

void ClusterImpl::resume() {
  {
    std::lock_guard lock(mutex_);
    for (auto& node : nodes_) node.suspended = false;
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i) (void)send_to_node(i, Resume{});
}

void ClusterImpl::spawn_remote(const SpawnOptions& options, std::string type, Bytes arguments,
                               AddressCallback done) {
  if (shutting_down_) return done(fail(ErrorCode::cancelled, "the cluster is shutting down"));
  if (arguments.size() > max_argument_bytes) {
    return done(fail(ErrorCode::invalid_argument,
                     "the construction arguments of a {} have {} bytes; the limit is {}", type,
                     arguments.size(), max_argument_bytes));
  }
  std::optional<ActorFailed> unsent;
  const auto refused = [&]() -> std::optional<Error> {
    std::lock_guard lock(spawning_);
    auto admitted = registry_->admit(options, type, done);
    if (!admitted.ok()) return std::move(admitted).error();
    const auto sent =
        send_to_node(admitted->node,
                     StartActor{admitted->process, admitted->starts_process, admitted->process_name,
                                admitted->address, std::move(arguments), admitted->devices});
    if (!sent.ok()) unsent = {admitted->address.id, sent.error().code, sent.error().message};
    return std::nullopt;
  }();
  if (refused) done(*refused);
  if (!unsent) return;
  registry_->on_failed(*unsent);
  publish({});
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
      registry->on_started({address.id, address.endpoint, ::getpid()});
      return done(address);
    }
    registry->on_failed({address.id, made.error().code, made.error().message});
    forget({});
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
  registry_->on_failed({id, cell.error().code, cell.error().message});
  done(cell.error());
}

Result<void> ClusterImpl::stop(const ActorAddress& actor, milliseconds timeout) {
  auto down = std::make_shared<Promise<ActorDown>>();
  const auto token = watch(actor, [down](const ActorDown& end) { down->complete(end); });
  std::shared_ptr<ActorCell> cell;
  {
    std::lock_guard lock(mutex_);
    if (const auto found = local_.find(actor.id); found != local_.end()) cell = found->second;
  }
  const auto place = registry_->process_of(actor.id);
  if (cell) {
    cell->stop();
  } else if (place.ok()) {
    (void)send_to_node(place->node, StopActor{place->process, actor.id});
  } else if (!registry_->down_of(actor.id)) {
    return fail(ErrorCode::not_found, "there is no actor {}", actor.id);
  }
  if (down->future().wait(timeout)) return {};
  if (place.ok()) (void)send_to_node(place->node, StopProcess{place->process, true});
  return fail(ErrorCode::timeout, "actor '{}' did not end within {} ms{}", actor.name,
              timeout.count(), place.ok() ? "; its process was killed" : "");
}

Result<void> ClusterImpl::kill(const ActorAddress& actor) {
  TROUPE_TRY(const auto place, registry_->process_of(actor.id));
  (void)send_to_node(place.node, StopProcess{place.process, true});
  return {};
}

std::vector<Cluster::NodeInfo> ClusterImpl::nodes() const {
  std::lock_guard lock(mutex_);
  std::vector<NodeInfo> infos;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    infos.push_back(
        {options_.nodes[i], node.host, node.address, node.agent_pid, node.ready && !node.over});
  }
  return infos;
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

void ClusterImpl::stop_agents(milliseconds timeout) {
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    (void)send_to_node(i, Shutdown{timeout.count() / 2});
  const auto all_over = [this] {
    return std::all_of(nodes_.begin(), nodes_.end(),
                       [](const Node& node) { return node.over || !node.keeper; });
  };
  std::unique_lock lock(mutex_);
  if (!wait_for(changed_, lock, timeout / 2 + milliseconds(50), all_over)) {
    for (auto& node : nodes_) {
      if (node.keeper && !node.over) node.keeper->signal(SIGKILL);
    }
  }
  lock.unlock();
  for (auto& node : nodes_) {
    if (node.keeper) node.keeper->join();
  }
}

void ClusterImpl::shutdown(milliseconds timeout) {
  if (shutting_down_.exchange(true)) return;
  const auto busy = stop_local_actors(timeout);
  stop_agents(timeout);
  for (std::size_t i = 0; i < nodes_.size(); ++i) (void)registry_->on_node_lost(i, "was shut down");
  {
    std::lock_guard lock(gate_->mutex);
    gate_->cluster = nullptr;
  }
  std::unique_ptr<ControlServer> control;
  {
    std::lock_guard lock(mutex_);
    control = std::move(control_);
  }
  control.reset();  // without the lock: its last events may wait for it
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
