#include <algorithm>
#include <charconv>

#include "runtime/actor/actor_registry.hpp"
#include "runtime/actor/directory.hpp"

namespace troupe {
namespace {

std::int64_t ms_since_1970(std::chrono::system_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

EndedActor ended_actor(const EndedActors::End& end) {
  const ActorDown& down = end.down;
  return {down.id,
          down.name,
          down.type,
          down.node,
          down.pid,
          down.incarnation,
          ms_since_1970(end.at),
          std::string(to_string(down.cause)),
          down.code,
          down.message,
          down.log_path};
}

}  // namespace

bool ActorRegistry::is_directory(const Actor& actor) {
  return actor.is_local() && actor.address->type == Directory::actor_type;
}

std::size_t ActorRegistry::count_actors() const {
  // A cluster's directory is made before all other actors.
  const bool has_directory = !actors_.empty() && is_directory(actors_.begin()->second);
  return actors_.size() - (has_directory ? 1 : 0);
}

ActorRegistry::Counts ActorRegistry::counts() const {
  std::lock_guard lock(mutex_);
  return {count_actors(), waiting_, placement_.group_count()};
}

ActorState ActorRegistry::state_of(const Actor& actor) const {
  const bool waits = actor.restarts && actor.restarts->is_waiting;
  ActorState state{.id = actor.address->id,
                   .name = actor.address->name,
                   .type = actor.address->type,
                   .node = actor.is_local() ? "driver" : "",
                   .restarts = actor.address->incarnation,
                   .owner = actor.owner()};
  if (actor.is_there || actor.is_local()) state.pid = actor.pid;
  state.life = waits                            ? ActorState::Life::restarting
               : actor.is_there                 ? ActorState::Life::alive
               : actor.address->incarnation > 0 ? ActorState::Life::restarting
                                                : ActorState::Life::starting;
  if (actor.restarts) state.last_end = actor.restarts->last_end;
  if (waits || actor.is_local()) return state;
  state.node = nodes_[actor.hosted->reservation.node].name;
  state.devices = actor.hosted->reservation.held.devices;
  state.resources = actor.hosted->reservation.held.amounts;
  const auto process = processes_.find(actor.hosted->process);
  if (process != processes_.end()) {
    state.log_path = logs_.of_process(process->second.name, state.node);
  }
  return state;
}

ActorsReply ActorRegistry::actor_states(const AskActors& ask) const {
  const std::size_t wanted = std::min(ask.actors, max_page);
  ActorsReply reply;
  reply.actors.reserve(wanted);
  std::lock_guard lock(mutex_);
  reply.all_actors = count_actors();
  for (auto next = actors_.upper_bound(ask.after);
       next != actors_.end() && reply.actors.size() < wanted; ++next) {
    if (!is_directory(next->second)) reply.actors.push_back(state_of(next->second));
  }
  for (const auto& end : ended_.latest(std::min(ask.ended, max_page), ask.ended_before)) {
    reply.ended.push_back(ended_actor(end));
  }
  return reply;
}

GroupsReply ActorRegistry::group_states(const AskGroups& ask) const {
  std::lock_guard lock(mutex_);
  GroupsReply reply;
  auto page = placement_.groups_after(ask.after, max_page);
  reply.is_last = page.is_last;
  for (auto& group : page.groups) {
    GroupState state{std::move(group), {}, {}};
    for (auto& room : placement_.room_in(state.group.id)) {
      state.free.push_back(std::move(room.free));
      state.actors.push_back(room.actors);
    }
    reply.groups.push_back(std::move(state));
  }
  return reply;
}

namespace {

bool is_meant(std::string_view actor, ActorId id, const std::string& name) {
  return actor == name || actor == std::to_string(id);
}

}  // namespace

ActorRegistry::Actors::const_iterator ActorRegistry::find_meant(std::string_view actor,
                                                                ActorId& id) const {
  const std::string full_name = names_.full_name(actor, {});
  if (const auto named = names_.find(full_name)) {
    id = *named;
  } else {  // "7", or a name that was made from type and id: "Worker-7"
    const auto digits = actor.substr(actor.rfind('-') + 1);
    std::from_chars(digits.data(), digits.data() + digits.size(), id);
  }
  const auto found = actors_.find(id);
  const bool fits = found != actors_.end() && is_meant(full_name, id, found->second.address->name);
  return fits ? found : actors_.end();
}

Result<ActorRegistry::ActorPlace> ActorRegistry::place_of(std::string_view actor) const {
  std::lock_guard lock(mutex_);
  ActorId id = 0;
  const auto found = find_meant(actor, id);
  if (found == actors_.end()) {
    return fail(ErrorCode::not_found, "no living actor has the name or id '{}': {}", actor,
                names_.missing(actor, {}).message);
  }
  const Actor& living = found->second;
  if (living.is_local()) return ActorPlace{living.address->name, true, {}};
  if (living.restarts && living.restarts->is_waiting) {
    return fail(ErrorCode::not_found, "actor '{}' is not there: it waits to be started again",
                living.address->name);
  }
  const Hosted& hosted = *living.hosted;
  return ActorPlace{living.address->name, false, {hosted.reservation.node, hosted.process}};
}

std::optional<ActorRegistry::ActorLog> ActorRegistry::log_of(std::string_view actor) const {
  std::lock_guard lock(mutex_);
  ActorId id = 0;
  const auto found = find_meant(actor, id);
  if (found != actors_.end()) {
    const Actor& living = found->second;
    if (living.is_local()) return ActorLog{"", "driver"};
    if (living.restarts && living.restarts->is_waiting) return living.restarts->last_log;
    const std::string& node = nodes_[living.hosted->reservation.node].name;
    const auto process = processes_.find(living.hosted->process);
    if (process == processes_.end()) return ActorLog{"", node};
    return ActorLog{logs_.of_process(process->second.name, node), node};
  }
  const auto* end = ended_.find_last([&](const auto& candidate) {
    return is_meant(actor, candidate.down.id, candidate.down.name);
  });
  if (end == nullptr) return std::nullopt;
  return ActorLog{end->down.log_path, end->down.node};
}

Resources ActorRegistry::free_on(std::size_t node) const {
  std::lock_guard lock(mutex_);
  return placement_.free_on(node);
}

std::optional<PlacementTable::Reservation> ActorRegistry::reserve(const Resources& asked,
                                                                  const std::string& node) {
  std::lock_guard lock(mutex_);
  return placement_.try_place(asked, node, PlacementStrategy::spread);
}

void ActorRegistry::release(const PlacementTable::Reservation& reservation) {
  std::lock_guard lock(mutex_);
  placement_.release(reservation);
}

Result<void> ActorRegistry::check_schedulable(const Resources& asked,
                                              const std::string& node) const {
  std::lock_guard lock(mutex_);
  return placement_.check_schedulable(asked, node);
}

int ActorRegistry::cpus_of(std::size_t node) const {
  std::lock_guard lock(mutex_);
  return nodes_[node].cpus;
}

std::string ActorRegistry::name_of_node(std::size_t node) const {
  std::lock_guard lock(mutex_);
  return nodes_[node].name;
}

}  // namespace troupe
