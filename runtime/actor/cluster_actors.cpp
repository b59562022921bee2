#include <set>

#include <unistd.h>

#include "runtime/actor/argument_limit.hpp"
#include "runtime/actor/cluster_impl.hpp"

namespace troupe {

using std::chrono::milliseconds;

// Spawning, stopping and restarting actors, and what is told of them.

void ClusterImpl::on_agent_message(std::size_t node, ControlMessage message) {
  if (!registry_->is_about_node(message, node)) {
    return log::error("the agent of node '{}' speaks for what is not on its node",
                      agents_.infos()[node].spec.name);
  }
  if (auto* report = std::get_if<NodeReport>(&message)) {
    return insight_.take(node, std::move(*report));
  }
  if (const auto* lines = std::get_if<LogLines>(&message)) return show(node, *lines);
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
    insight_.count_end(down);
    tasks_->on_down(down.id, down.message);
    std::set<std::size_t> nodes;
    {
      std::lock_guard lock(followers_mutex_);
      nodes = down.restarts ? followers_.of(down.id) : followers_.take(down.id);
    }
    if (nodes.empty()) continue;
    const ActorGone gone{down.id, down.restarts, encode(down)};
    for (const std::size_t node : nodes) (void)agents_.send(node, gone);
  }
  for (const DueRestart& due : registry_->take_restarts()) restarts_.add(due);
  for (const ActorId orphan : registry_->take_orphans()) begin_stop(orphan);
  (void)registry_->take_unneeded_objects();
  for (const auto& idle : registry_->take_idle_processes()) {
    (void)agents_.send(idle.node, StopProcess{idle.process, idle.is_doomed});
  }
  tasks_->on_room();
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
  const auto registrations = std::make_shared<Registrations>();
  const auto answer = [this, node, registrations, number = request.request,
                       process = request.process](const Result<ActorAddress>& address) {
    SpawnReply reply{.request = number, .process = process, .ok = address.ok()};
    if (address.ok()) {
      reply.actor = *address;
    } else {
      reply.code = address.error().code;
      reply.message = address.error().message;
    }
    // Its process keeps the objects among the arguments until then.
    services_->objects->when_registered(*registrations,
                                        [this, node, reply] { (void)agents_.send(node, reply); });
  };
  SpawnOptions options;
  std::vector<ObjectOnTheWire> objects;
  Decoder decoder(request.options);
  decoder(options, objects);
  if (const auto decoded = decoder.finish(); !decoded.ok()) return answer(decoded.error());
  EncodedArguments arguments{std::move(request.arguments), {}};
  {
    const RegistrationScope registering;
    for (const auto& object : objects) {
      arguments.objects.push_back(services_->objects->adopt(object));
    }
    *registrations = registering.open();
  }
  spawn_owned(request.owner, options, std::move(request.type), std::move(arguments), answer);
}

/// Reports where an actor is that was started again.
void ClusterImpl::publish(const ActorAddress& again) {
  log::info("actor '{}' is there again (incarnation {})", again.name, again.incarnation);
  services_->hub->mark_moved(again);
  insight_.count_restart(again);
  std::set<std::size_t> nodes;
  {
    std::lock_guard lock(followers_mutex_);
    nodes = followers_.of(again.id);
  }
  for (const std::size_t node : nodes) (void)agents_.send(node, ActorMoved{again});
}

void ClusterImpl::restart(const DueRestart& due) {
  std::optional<ActorFailed> failed;
  std::optional<ProcessEnded> unsent;
  {
    std::lock_guard lock(spawning_);
    auto again = registry_->admit_again(due.actor, due.incarnation);
    if (!again.ok() && again.error().code == ErrorCode::not_found) return;
    if (!again.ok()) {
      failed = {due.actor, again.error().code, again.error().message};
    } else if (!send_start(again->admission, std::move(again->arguments)).ok()) {
      unsent = {.process = again->admission.process};
    }
  }
  if (failed) publish(registry_->on_failed(*failed));
  // Its node is being lost: it is tried again, as after the end of its process.
  if (unsent) publish(registry_->on_process_ended(*unsent));
}

Result<void> ClusterImpl::send_start(const ActorRegistry::Admission& admission, Bytes arguments) {
  StartActor start{admission.process,
                   admission.starts_process,
                   admission.process_name,
                   admission.address,
                   std::move(arguments),
                   admission.devices,
                   admission.hides_other_devices,
                   admission.dedicated_thread,
                   admission.bound_cpus,
                   admission.max_concurrency,
                   admission.memory_limit};
  if (options_.in_process) {
    start.dedicated_thread = admission.wants_thread;
    start.bound_cpus = 0;
  }
  if (start.bound_cpus > 0) {
    if (const auto bindable = agents_.check_bindable(admission.node); !bindable.ok()) {
      log::warning("actor '{}' is not bound to CPUs: {}", admission.address.name,
                   bindable.error().message);
      start.bound_cpus = 0;
    }
  }
  return agents_.send(admission.node, start);
}

void ClusterImpl::spawn_remote(const SpawnOptions& options, std::string type,
                               EncodedArguments arguments, AddressCallback done) {
  spawn_owned(0, options, std::move(type), std::move(arguments),
              [done = std::move(done)](Result<ActorAddress> address) {
                if (!address.ok()) return done(std::move(address).error());
                done(std::make_shared<const ActorAddress>(*std::move(address)));
              });
}

void ClusterImpl::spawn_owned(ActorId owner, const SpawnOptions& options, std::string type,
                              EncodedArguments encoded,
                              const ActorRegistry::AddressCallback& done) {
  if (shutting_down_) return done(fail(ErrorCode::cancelled, "the cluster is shutting down"));
  if (auto fits = check_argument_bytes(type, encoded.bytes); !fits.ok()) {
    return done(std::move(fits).error());
  }
  const auto started = [this, done, objects = encoded.objects](Result<ActorAddress> address) {
    if (address.ok() && address->is_restartable) services_->hub->mark_moved(*address);
    done(std::move(address));
  };
  std::optional<ActorFailed> unsent;
  const auto refused = [&]() -> std::optional<Error> {
    std::lock_guard lock(spawning_);
    auto admitted = registry_->admit(options, type, encoded, started, owner);
    if (!admitted.ok()) return std::move(admitted).error();
    const auto sent = send_start(*admitted, std::move(encoded.bytes));
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
  const auto admitted =
      registry_->admit_local(options, type, services_->hub->endpoint(), ::getpid());
  if (!admitted.ok()) return done(admitted.error());
  const ActorId id = (*admitted)->id;
  auto on_made = [registry = registry_, gate = gate_, address = *admitted,
                  done](const Result<void>& made) {
    if (made.ok()) {
      (void)registry->on_started({address->id, address->endpoint, ::getpid()});
      return done(address);
    }
    forget_local(gate, address->id,
                 registry->on_failed({address->id, made.error().code, made.error().message}));
    done(made.error());
  };
  std::unique_lock lock(mutex_);
  auto cell = ActorCell::start({.address = *admitted,
                                .dedicated_thread = options.dedicated_thread,
                                .max_concurrency = options.max_concurrency,
                                .factory = std::move(make),
                                .on_made = std::move(on_made),
                                .events = local_events_},
                               services_);
  if (cell.ok()) {
    local_[id] = *std::move(cell);
    return;
  }
  lock.unlock();
  (void)registry_->on_failed({id, cell.error().code, cell.error().message});
  done(cell.error());
}

std::shared_ptr<const ActorCell::Events> ClusterImpl::local_events() {
  return std::make_shared<const ActorCell::Events>(ActorCell::Events{
      .on_ended = [registry = registry_, gate = gate_](const ActorAddress& actor, bool exited,
                                                       const std::string& reason) {
        forget_local(gate, actor.id, registry->on_ended({actor.id, exited, reason}));
      }});
}

void ClusterImpl::forget_local(const std::shared_ptr<ClusterGate>& gate, ActorId id,
                               const std::vector<ActorDown>& downs) {
  std::lock_guard lock(gate->mutex);
  if (gate->cluster == nullptr) return;
  gate->cluster->publish(downs);
  std::lock_guard local_lock(gate->cluster->mutex_);
  gate->cluster->local_.erase(id);
}

Result<void> ClusterImpl::stop(const ActorAddress& actor, milliseconds timeout) {
  auto down = std::make_shared<Promise<ActorDown>>();
  // Not by watch(): another watch's callback may block, and would delay this one.
  const auto token = services_->watches->watch_at_once(actor.id, [down](const ActorDown& end) {
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
  // Others in its process have done nothing wrong, and none may come in before it is killed.
  const bool is_alone = place.ok() && registry_->close_process_of(actor.id);
  if (is_alone) (void)agents_.send(place->node, StopProcess{place->process, true});
  std::string_view then;
  if (place.ok()) {
    then = is_alone ? "; its process was killed"
                    : "; it has been told to, and its process, which others share, goes on";
  }
  return fail(ErrorCode::timed_out, "actor '{}' did not end within {} ms{}", actor.name,
              timeout.count(), then);
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

Result<void> ClusterImpl::close_node(const std::string& node) {
  TROUPE_TRY(const std::size_t index, agents_.index_of(node));
  registry_->close_node(index);
  return {};
}

Result<void> ClusterImpl::dismiss_node(const std::string& node) {
  TROUPE_TRY(const std::size_t index, agents_.index_of(node));
  return agents_.dismiss(index);
}

Result<void> ClusterImpl::remove_placement_group(PlacementGroupId id) {
  {
    std::lock_guard lock(spawning_);  // an agent knows each process before it is to kill it
    TROUPE_TRY(const auto doomed, registry_->remove_placement_group(id));
    for (const auto& place : doomed) {
      (void)agents_.send(place.node, StopProcess{place.process, true});
    }
  }
  publish(std::vector<ActorDown>());  // ends those that wait for a place
  return {};
}

}  // namespace troupe
