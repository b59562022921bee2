#include "runtime/actor/actor_registry.hpp"

#include <algorithm>
#include <set>

#include <unistd.h>

#include "runtime/actor/directory.hpp"

namespace troupe {
namespace {

Result<void> check_max_concurrency(const SpawnOptions& options, const std::string& type) {
  if (options.max_concurrency >= 0) return {};
  return fail(ErrorCode::invalid_argument,
              "max_concurrency of a {} is {}; give the number of its calls that may be under way, "
              "or 0 for the default",
              type, options.max_concurrency);
}

}  // namespace

Result<ActorAddress> Directory::find(const std::string& name, const std::string& space,
                                     const std::string& type) {
  return registry_->find(name, space, type);
}

ActorRegistry::ActorRegistry(std::vector<NodeSpec> nodes, PlacementStrategy strategy,
                             LogPlaces logs, std::string name_space)
    : nodes_(nodes),
      strategy_(strategy),
      logs_(std::move(logs)),
      placement_(std::move(nodes)),
      processes_of_node_(nodes_.size()),
      names_(std::move(name_space)) {}

void ActorRegistry::name_node(std::size_t node, const std::string& name, bool on_trial) {
  std::lock_guard lock(mutex_);
  nodes_[node].name = name;
  placement_.name_node(node, name, on_trial);
}

void ActorRegistry::close_node(std::size_t node) {
  std::lock_guard lock(mutex_);
  placement_.close_node(node);
}

void ActorRegistry::admit_node(std::size_t node) {
  std::lock_guard lock(mutex_);
  placement_.admit_node(node);
}

std::string ActorRegistry::name_for(const SpawnOptions& options, const std::string& type,
                                    ActorId id) const {
  if (options.name.empty()) return fmt::format("{}-{}", type, id);
  return names_.full_name(options.name, options.name_space);
}

Result<ActorRegistry::Admission> ActorRegistry::admit(const SpawnOptions& options,
                                                      const std::string& type,
                                                      const EncodedArguments& arguments,
                                                      AddressCallback done, ActorId owner) {
  std::lock_guard lock(mutex_);
  const auto owning = actors_.find(owner);
  if (owner != 0 && owning == actors_.end()) {
    return fail(ErrorCode::actor_died, "the actor that spawns a {} is gone", type);
  }
  TROUPE_CHECK(names_.check(options.name, options.name_space));
  if (options.process.find('/') != std::string::npos) {
    return fail(ErrorCode::invalid_argument,
                "the process label '{}' has a '/', but it names a log file", options.process);
  }
  if (options.binds_cpus && (!options.process.empty() || options.resources.cpus < 1)) {
    return fail(ErrorCode::invalid_argument,
                "an actor is bound to its cpus if it reserves one or more and has a process of its "
                "own; this {} {}",
                type, options.process.empty() ? "reserves none" : "shares a process");
  }
  TROUPE_CHECK(check_max_concurrency(options, type));
  if (options.limits_memory && (!options.process.empty() || options.resources.memory_bytes < 1)) {
    return fail(ErrorCode::invalid_argument,
                "an actor is held to its memory if it reserves some and has a process of its own; "
                "this {} {}",
                type, options.process.empty() ? "reserves none" : "shares a process");
  }
  Actor actor;
  actor.named = !options.name.empty();
  actor.address = std::make_shared<const ActorAddress>(
      ActorAddress{.id = next_actor_,
                   .endpoint = {},
                   .name = name_for(options, type, next_actor_),
                   .type = type,
                   .is_restartable = options.max_restarts != 0,
                   .max_call_retries = options.max_call_retries});
  actor.hosted = std::make_unique<Hosted>();
  TROUPE_TRY(auto admission, place(actor, options));
  ++next_actor_;
  actor.hosted->done = std::move(done);
  if (actor.address->is_restartable) {
    actor.restarts = std::make_unique<Restartable>(
        Restartable{options, arguments, RestartBudget(options.max_restarts)});
    if (options.bundle) restartable_of_group_[options.bundle->group].insert(actor.address->id);
  }
  if (actor.named) names_.add(actor.address->name, actor.address->id);
  if (owner != 0 && !options.is_detached) {
    actor.hosted->owner = owner;
    auto& owned = owning->second.owned;
    if (!owned) owned = std::make_unique<std::unordered_set<ActorId>>();
    owned->insert(actor.address->id);
  }
  const ActorId id = actor.address->id;
  actors_.emplace(id, std::move(actor));
  return admission;
}

Result<std::string> ActorRegistry::node_asked(const SpawnOptions& options) const {
  if (!options.bundle) return options.node;
  TROUPE_TRY(const std::size_t index, placement_.node_of(*options.bundle));
  const std::string& node = nodes_[index].name;
  if (options.node.empty() || options.node == node) return node;
  return fail(ErrorCode::invalid_argument, "node '{}' is asked for, but the bundle is on '{}'",
              options.node, node);
}

Result<ActorRegistry::Restart> ActorRegistry::admit_again(ActorId id, std::uint32_t incarnation) {
  std::lock_guard lock(mutex_);
  const auto found = actors_.find(id);
  if (found == actors_.end() || !found->second.restarts || !found->second.restarts->is_waiting ||
      found->second.address->incarnation + 1 != incarnation) {
    return fail(ErrorCode::not_found, "actor {} is not to be restarted", id);
  }
  Actor& actor = found->second;
  actor.count_incarnation(1);
  auto admission = place(actor, actor.restarts->options);
  if (!admission.ok()) {
    if (admission.error().code == ErrorCode::resource_exhausted) return admission.error();
    const auto& bundle = actor.restarts->options.bundle;
    if (bundle && placement_.moves(*bundle)) {
      actor.count_incarnation(-1);
      return fail(ErrorCode::not_found, "{}; it waits", admission.error().message);
    }
    // Its node is lost or its placement group is gone, and it may be nowhere else.
    actor.restarts->budget.cancel();
    return Error{ErrorCode::peer_died, admission.error().message};
  }
  actor.restarts->is_waiting = false;
  --waiting_;
  return Restart{*std::move(admission), actor.restarts->arguments.bytes};
}

Result<ActorRegistry::Admission> ActorRegistry::place(Actor& actor, const SpawnOptions& options) {
  TROUPE_TRY(std::string node, node_asked(options));
  const auto shared = process_labelled(options.process, node);
  if (shared) node = nodes_[processes_.at(*shared).node].name;
  TROUPE_TRY(actor.hosted->reservation,
             options.bundle ? placement_.place_in(options.resources, *options.bundle)
                            : placement_.place(options.resources, node, strategy_));
  const ActorId id = actor.address->id;
  if (options.bundle) actors_of_group_[options.bundle->group].insert(id);
  actor.hosted->process = shared ? *shared : next_process_++;
  auto& process = processes_[actor.hosted->process];
  const std::size_t index = actor.hosted->reservation.node;
  if (!shared) {
    process.node = index;
    process.label = options.process;
    process.name = options.process.empty()
                       ? ActorNames::file_name(actor.address->name)
                       : fmt::format("{}-{}", options.process, nodes_[index].name);
    open(actor.hosted->process, process);
  }
  process.actors.insert(id);
  const auto& devices = actor.hosted->reservation.held.devices;
  const bool hides_others =
      options.hides_other_devices && options.process.empty() && !devices.empty();
  return Admission{.address = *actor.address,
                   .node = index,
                   .process = actor.hosted->process,
                   .starts_process = !shared.has_value(),
                   .process_name = process.name,
                   .devices = devices,
                   .hides_other_devices = hides_others,
                   .dedicated_thread = options.dedicated_thread || options.process.empty(),
                   .wants_thread = options.dedicated_thread,
                   .bound_cpus = options.binds_cpus ? options.resources.cpus : 0,
                   .max_concurrency = options.max_concurrency,
                   .memory_limit = options.limits_memory ? options.resources.memory_bytes : 0};
}

std::optional<ProcessId> ActorRegistry::process_labelled(const std::string& label,
                                                         const std::string& node) const {
  const auto found = labelled_.find(label);
  if (found == labelled_.end()) return std::nullopt;
  for (const auto& [index, process] : found->second) {
    if (node.empty() || nodes_[index].name == node) return process;
  }
  return std::nullopt;
}

void ActorRegistry::open(ProcessId id, const Process& process) {
  processes_of_node_[process.node].insert(id);
  if (!process.label.empty()) labelled_[process.label][process.node] = id;
}

void ActorRegistry::close(Process& process) {
  if (std::exchange(process.is_closed, true)) return;
  const auto found = labelled_.find(process.label);
  if (found == labelled_.end()) return;
  found->second.erase(process.node);
  if (found->second.empty()) labelled_.erase(found);
}

Result<SharedAddress> ActorRegistry::admit_local(const SpawnOptions& options,
                                                 const std::string& type,
                                                 const std::string& endpoint, int pid) {
  std::lock_guard lock(mutex_);
  TROUPE_CHECK(names_.check(options.name, options.name_space));
  if (!options.node.empty() || !options.process.empty() || options.bundle ||
      !options.resources.is_nothing() || options.binds_cpus || options.max_restarts != 0) {
    return fail(ErrorCode::invalid_argument,
                "a local actor takes no node, process, bundle, resources or restarts, only a name");
  }
  TROUPE_CHECK(check_max_concurrency(options, type));
  const ActorId id = next_actor_++;
  Actor actor;
  actor.named = !options.name.empty();
  actor.address = std::make_shared<const ActorAddress>(
      ActorAddress{id, endpoint, name_for(options, type, id), type});
  actor.pid = pid;
  if (actor.named) names_.add(actor.address->name, id);
  auto address = actor.address;
  actors_.emplace(id, std::move(actor));
  return address;
}

std::optional<ActorAddress> ActorRegistry::on_started(const ActorStarted& started) {
  AddressCallback done;
  ActorAddress address;
  {
    std::lock_guard lock(mutex_);
    const auto found = actors_.find(started.actor);
    if (found == actors_.end()) return std::nullopt;
    Actor& actor = found->second;
    if (actor.address->endpoint != started.endpoint) {
      actor.change_address([&](ActorAddress& changed) { changed.endpoint = started.endpoint; });
    }
    actor.pid = started.pid;
    actor.is_there = true;
    if (actor.restarts) actor.restarts->budget.note_start(RestartBudget::Clock::now());
    if (actor.hosted) done = std::exchange(actor.hosted->done, nullptr);
    address = *actor.address;
  }
  if (!done) return address;
  done(std::move(address));
  return std::nullopt;
}

Result<PlacementGroup> ActorRegistry::create_placement_group(const PlacementGroupOptions& options) {
  std::lock_guard lock(mutex_);
  return placement_.create_group(options);
}

std::vector<PlacementGroup> ActorRegistry::placement_groups() const {
  std::lock_guard lock(mutex_);
  return placement_.groups();
}

Result<PlacementGroup> ActorRegistry::place_again(PlacementGroupId id) {
  std::lock_guard lock(mutex_);
  const std::set<std::uint32_t> lost = placement_.lost_bundles(id);
  TROUPE_TRY(auto group, placement_.place_again(id));
  try_waiting_in(id, [&](std::uint32_t bundle) { return lost.contains(bundle); });
  return group;
}

void ActorRegistry::try_waiting_in(PlacementGroupId id,
                                   const std::function<bool(std::uint32_t)>& of_bundle) {
  const auto found = restartable_of_group_.find(id);
  if (found == restartable_of_group_.end()) return;
  for (const ActorId actor : found->second) {
    const Actor& waiting = actors_.at(actor);
    const Restartable& state = *waiting.restarts;
    if (!state.is_waiting || !of_bundle(state.options.bundle->index)) continue;
    restarts_.push_back({actor, waiting.address->incarnation + 1, RestartBudget::Clock::now()});
  }
}

Result<std::vector<ActorRegistry::ProcessPlace>> ActorRegistry::remove_placement_group(
    PlacementGroupId id) {
  std::lock_guard lock(mutex_);
  TROUPE_CHECK(placement_.remove_group(id));
  try_waiting_in(id, [](std::uint32_t) { return true; });  // and so ends them
  std::vector<ProcessPlace> doomed;
  const auto actors = actors_of_group_.find(id);
  if (actors == actors_of_group_.end()) return doomed;
  for (const ActorId actor : actors->second) {
    Actor& of_group = actors_.at(actor);
    if (of_group.restarts) of_group.restarts->budget.cancel();
    Process& of_actor = processes_.at(of_group.hosted->process);
    if (of_actor.is_closed) continue;  // it ends, or is in the list already
    close(of_actor);
    doomed.push_back({of_actor.node, of_group.hosted->process});
  }
  return doomed;
}

bool ActorRegistry::owns(ActorId owner, ActorId actor) const {
  std::lock_guard lock(mutex_);
  const auto found = actors_.find(actor);
  return found != actors_.end() && owner != 0 && found->second.owner() == owner;
}

bool ActorRegistry::close_process_of(ActorId actor) {
  std::lock_guard lock(mutex_);
  const auto found = actors_.find(actor);
  if (found == actors_.end() || found->second.is_local()) return false;
  const auto process = processes_.find(found->second.hosted->process);
  if (process == processes_.end() || process->second.actors.size() != 1) return false;
  close(process->second);
  return true;
}

std::optional<ActorAddress> ActorRegistry::address_of(ActorId actor) const {
  std::lock_guard lock(mutex_);
  const auto found = actors_.find(actor);
  if (found == actors_.end() || !found->second.is_there) return std::nullopt;
  return *found->second.address;
}

Result<ActorAddress> ActorRegistry::find(std::string_view name, std::string_view space,
                                         std::string_view type) const {
  std::lock_guard lock(mutex_);
  const auto found = names_.find(names_.full_name(name, space));
  if (!found || !actors_.at(*found).was_there()) return names_.missing(name, space);
  const ActorAddress& address = *actors_.at(*found).address;
  if (address.type != type) {
    return fail(ErrorCode::invalid_argument, "actor '{}' is a {}, not a {}", address.name,
                address.type, type);
  }
  return address;
}

Error ActorRegistry::missing(std::string_view name) const {
  std::lock_guard lock(mutex_);
  return names_.missing(name, {});
}

bool ActorRegistry::has(ActorId actor) const {
  std::lock_guard lock(mutex_);
  return actors_.contains(actor);
}

std::optional<ActorDown> ActorRegistry::down_of(ActorId actor) const {
  std::lock_guard lock(mutex_);
  if (auto down = ended_.find(actor)) return down;
  if (actor >= next_actor_ || actor == 0 || actors_.contains(actor)) return std::nullopt;
  ActorDown down;
  down.id = actor;
  down.cause = DownCause::forgotten;
  down.message = fmt::format("actor {} ended so long ago that it is not known how", actor);
  return down;
}

std::size_t ActorRegistry::process_count() const {
  std::lock_guard lock(mutex_);
  return processes_.size();
}

bool ActorRegistry::is_about_node(const ControlMessage& message, std::size_t node) const {
  std::lock_guard lock(mutex_);
  const auto has_actor = [&](ActorId id) {
    const auto found = actors_.find(id);
    return found == actors_.end() ||
           (!found->second.is_local() && found->second.hosted->reservation.node == node);
  };
  if (const auto* started = std::get_if<ActorStarted>(&message)) return has_actor(started->actor);
  if (const auto* failed = std::get_if<ActorFailed>(&message)) return has_actor(failed->actor);
  if (const auto* ended = std::get_if<ActorEnded>(&message)) return has_actor(ended->actor);
  if (const auto* spawn = std::get_if<SpawnRequest>(&message)) return has_actor(spawn->owner);
  if (const auto* stop = std::get_if<StopOwned>(&message)) return has_actor(stop->owner);
  if (const auto* process = std::get_if<ProcessEnded>(&message)) {
    const auto found = processes_.find(process->process);
    return found == processes_.end() || found->second.node == node;
  }
  return true;
}

Result<ActorRegistry::ProcessPlace> ActorRegistry::process_of(ActorId actor) const {
  std::lock_guard lock(mutex_);
  const auto found = actors_.find(actor);
  const bool is_placed = found != actors_.end() && !found->second.is_local() &&
                         !(found->second.restarts && found->second.restarts->is_waiting);
  if (!is_placed) return fail(ErrorCode::not_found, "actor {} does not live on a node", actor);
  return ProcessPlace{found->second.hosted->reservation.node, found->second.hosted->process};
}

std::vector<Cluster::ActorInfo> ActorRegistry::actors() const {
  std::lock_guard lock(mutex_);
  std::vector<Cluster::ActorInfo> infos;
  for (const auto& [id, actor] : actors_) {
    if (!actor.is_there) continue;
    Cluster::ActorInfo info{*actor.address, "driver", actor.pid, {}, ""};
    if (!actor.is_local()) {
      info.devices = actor.hosted->reservation.held.devices;
      info.node = nodes_[actor.hosted->reservation.node].name;
      if (const auto process = processes_.find(actor.hosted->process);
          process != processes_.end()) {
        info.log_path = logs_.of_process(process->second.name, info.node);
      }
    }
    infos.push_back(std::move(info));
  }
  std::sort(infos.begin(), infos.end(),
            [](const auto& a, const auto& b) { return a.address.id < b.address.id; });
  return infos;
}

}  // namespace troupe
