#include "runtime/actor/cluster.hpp"

#include <cstdio>
#include <filesystem>

#include <unistd.h>

#include "runtime/actor/cluster_impl.hpp"
#include "runtime/call/in_process_transport.hpp"
#include "runtime/call/network_transport.hpp"
#include "runtime/node/shared_regions.hpp"
#include "runtime/process/cpu_affinity.hpp"

namespace troupe {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

}  // namespace

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
  insight_.begin(services_->hub->observer(), services_->objects, tasks_);
  if (options_.in_process) {
    std::vector<std::string> nodes;
    for (const NodeSpec& node : options_.nodes) nodes.push_back(node.name);
    TROUPE_CHECK(agents_.start_in_process(std::make_unique<InProcessNodes>(
        std::move(nodes), services_, [this](std::size_t node, ControlMessage message) {
          on_agent_message(node, std::move(message));
        })));
    return agents_.wait();
  }
  TROUPE_CHECK(agents_.start());
  observer_.start(job_id_);
  return agents_.wait();
}

Result<void> ClusterImpl::start_services() {
  TROUPE_TRY(const std::string name, draw_call_name(job_id_));
  const CallKeys call_plane = call_keys(keys_, name);
  TROUPE_TRY(auto transport,
             options_.in_process
                 ? Result<std::unique_ptr<Transport>>(make_in_process_transport(name))
                 : make_network_transport(call_plane, {job_id_, options_.address, options_.ports}));
  TROUPE_TRY(auto hub, CallHub::create(std::move(transport), options_.calls));
  TROUPE_TRY(const auto directory, registry_->admit_local({}, std::string(Directory::actor_type),
                                                          hub->endpoint(), ::getpid()));
  const auto regions = std::make_shared<SharedRegions>();  // actors may outlive the cluster
  const auto watches = std::make_shared<WatchTable>(
      [registry = registry_](ActorId actor) { return registry->down_of(actor); },
      options_.calls.callback_grace);
  tasks_ = start_tasks(hub);
  services_ = std::make_shared<HostServices>(HostServices{
      "driver", options_.address, options_.ports, options_.job_folder, "",
      [keys = keys_](const ActorAddress& asker, const ChannelScope& scope) {
        return channel_key(keys, asker.name, scope);
      },
      hub, watches, ActorHandle<Directory>(directory, hub),
      [local = regions](std::string_view name, std::size_t bytes) {
        return local->open(name, bytes, 0);  // this process outlives it
      },
      [local = regions](std::string_view prefix) -> Result<void> {
        local->release(prefix);
        return {};
      },
      [gate = gate_](ActorId owner, const SpawnOptions& options, std::string type,
                     EncodedArguments arguments, const ActorRegistry::AddressCallback& done) {
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
      },
      std::make_shared<TaskPool>(TaskPool::Options{.name = "local actors"}),
      [tasks = tasks_](SubmittedTask task, CallCompletion done) {
        return tasks->submit(std::move(task), std::move(done));
      }});
  TROUPE_CHECK(start_objects(call_plane));
  Promise<void> made;
  const auto make = [registry = registry_](ActorContext&) -> Result<std::unique_ptr<ActorObject>> {
    return std::unique_ptr<ActorObject>(std::make_unique<actor_detail::TypedActor<Directory>>(
        std::make_unique<Directory>(registry)));
  };
  // Answers all nodes, whatever the local actors do.
  const auto events = std::make_shared<const ActorCell::Events>(
      ActorCell::Events{.on_ended = [](const ActorAddress&, bool, const std::string&) {}});
  TROUPE_TRY(directory_,
             ActorCell::start(
                 {.address = directory,
                  .dedicated_thread = true,
                  .factory = make,
                  .on_made = [made](Result<void> result) { made.complete(std::move(result)); },
                  .events = events},
                 services_));
  return made.future().get(milliseconds(5000));
}

Result<void> ClusterImpl::start_objects(const CallKeys& keys) {
  ObjectStoreOptions options;
  options.process_name = "driver";
  options.node = "driver";
  options.locality = job_id_;
  options.address = options_.address;
  options.ports = options_.ports;
  options.keys = keys;
  options.node_bytes = options_.object_store_bytes;
  options.spill_folder = spill_folder();
  options.ledger_memory = [open = services_->shared_memory](std::size_t bytes) {
    return open("troupe.objects", bytes);
  };
  TROUPE_TRY(services_->objects, ObjectStore::start(services_->hub, std::move(options)));
  return {};
}

NodeAgents::Events ClusterImpl::agent_events() {
  return {[this](const std::string& node, const AgentReady& hello) {
            return bootstrap_of(node, hello);
          },
          [this](std::size_t node, const std::string& name, bool on_trial) {
            registry_->name_node(node, name, on_trial);
          },
          [this](std::size_t node, ControlMessage message) {
            on_agent_message(node, std::move(message));
          },
          options_.judge ? [this](const JoinedNode& node) { return options_.judge(*this, node); }
                         : std::function<NodeVerdict(const JoinedNode&)>(),
          options_.judge_replacement
              ? [this](const JoinedNode& node) { return options_.judge_replacement(*this, node); }
              : std::function<NodeVerdict(const JoinedNode&)>(),
          [this](std::size_t node) { registry_->admit_node(node); },
          [this](std::size_t node, const std::string& how) {
            {
              std::lock_guard lock(followers_mutex_);
              followers_.remove(node);
            }
            inquiries_.lose(node);
            publish(registry_->on_node_lost(node, how));
            tell_stores_of_lost(node, how);
          }};
}

/// Whoever has references to objects there need not know any of its actors.
void ClusterImpl::tell_stores_of_lost(std::size_t node, const std::string& how) {
  // The links to processes of this host end with them.
  if (is_local_ || shutting_down_ || !services_->objects) return;
  const std::string locality = agents_.infos(node, 1).front().spec.name;
  services_->objects->on_node_lost(locality, how);
  agents_.send_to_all(NodeGone{locality, how});
}

AgentBootstrap ClusterImpl::bootstrap_of(const std::string& node, const AgentReady& hello) const {
  AgentBootstrap bootstrap;
  std::ranges::copy(keys_.secret(), bootstrap.secret.bytes.begin());
  bootstrap.job_id = job_id_;
  bootstrap.kill_limit_ms = options_.kill_limit.count();
  // Another host's agent writes to its stderr, which its starter, if it has one, brings here.
  if (is_local_) bootstrap.log_folder = options_.log_folder;
  auto& process = bootstrap.processes;
  bootstrap.forward_logs = options_.forward_logs;
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
  process.object_store_bytes = options_.object_store_bytes;
  process.object_spill_folder = spill_folder();
  return bootstrap;
}

ClusterImpl::LocalActors ClusterImpl::stop_local_actors(milliseconds timeout) {
  LocalActors cells;
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

void ClusterImpl::show(std::size_t node, const LogLines& lines) {
  const std::string name = agents_.infos(node, 1).front().spec.name;
  const std::lock_guard lock(shown_mutex_);
  const bool was_waiting = shown_.is_waiting();
  const std::string text = shown_.take(name, lines, ForwardedLogs::Clock::now());
  std::fwrite(text.data(), 1, text.size(), stderr);
  if (was_waiting || !shown_.is_waiting()) return;
  services_->hub->run_after(ForwardedLogs::window, [gate = gate_] {
    const std::lock_guard gate_lock(gate->mutex);
    if (gate->cluster != nullptr) gate->cluster->show_repeated(false);
  });
}

void ClusterImpl::show_repeated(bool is_end) {
  const std::lock_guard lock(shown_mutex_);
  const std::string text = shown_.take_repeated(ForwardedLogs::Clock::now(), is_end);
  std::fwrite(text.data(), 1, text.size(), stderr);
  if (is_end || !shown_.is_waiting()) return;
  services_->hub->run_after(std::chrono::milliseconds(500), [gate = gate_] {
    const std::lock_guard gate_lock(gate->mutex);
    if (gate->cluster != nullptr) gate->cluster->show_repeated(false);
  });
}

void ClusterImpl::shutdown(milliseconds timeout) {
  if (shutting_down_.exchange(true)) return;
  restarts_.stop();
  observer_.hide();
  if (tasks_) tasks_->stop();
  const auto busy = stop_local_actors(timeout);
  agents_.stop(timeout);
  inquiries_.stop();
  show_repeated(true);
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
  if (services_->objects) services_->objects->stop();
  services_->hub->stop();
  // Callers that still wait get an error now.
  const auto deadline = Clock::now() + milliseconds(500);
  for (const auto& [id, cell] : busy) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    if (!cell->wait_until_over(left))
      log::error("local actor {} does not end; it is left behind", id);
  }
  (void)services_->threads->stop(milliseconds(busy.empty() ? 1000 : 0));
}

Result<std::unique_ptr<Cluster>> Cluster::start(ClusterOptions options) {
  TROUPE_CHECK(check_program());
  if (options.nodes.empty()) {
    options.nodes.push_back({"node0", usable_cpu_count(), {}});
  }
  if (!options.log_folder.empty()) {
    options.log_folder = std::filesystem::absolute(options.log_folder).lexically_normal().string();
  }
  if (options.name_space.find('/') != std::string::npos) {
    return fail(ErrorCode::invalid_argument, "the namespace '{}' has a '/'", options.name_space);
  }
  if (options.in_process) {
    if (options.starter || options.join || !options.address.empty()) {
      return fail(
          ErrorCode::invalid_argument,
          "a cluster in one process has no starter, nobody joins it, and it has no address");
    }
    options.is_observable = false;
  }
  if (!options.starter) options.starter = std::make_shared<LocalNodeStarter>();
  TROUPE_CHECK(TaskFunctions::check());
  forbid_dumps();
  TROUPE_TRY(auto keys, JobKeys::generate());
  auto cluster = std::make_unique<ClusterImpl>(std::move(options), keys);
  TROUPE_CHECK(cluster->boot());
  return std::unique_ptr<Cluster>(std::move(cluster));
}

}  // namespace troupe
