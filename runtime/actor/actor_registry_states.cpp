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
  return actor.local && actor.address.type == Directory::actor_type;
}

ActorRegistry::Counts ActorRegistry::counts() const {
  std::lock_guard lock(mutex_);
  const auto first = actors_.find(1);  // a cluster's directory is made before all other actors
  const std::size_t directories = first != actors_.end() && is_directory(first->second) ? 1 : 0;
  return {actors_.size() - directories, waiting_, placement_.group_count()};
}

ActorsReply ActorRegistry::actor_states(std::size_t ended) const {
  ActorsReply reply;
  std::lock_guard lock(mutex_);
  for (const auto& [id, actor] : actors_) {
    if (is_directory(actor)) continue;
    const bool waits = actor.restarts && actor.restarts->is_waiting;
    ActorState state{.id = id,
                     .name = actor.address.name,
                     .type = actor.address.type,
                     .node = actor.local ? "driver" : "",
                     .restarts = actor.address.incarnation,
                     .owner = actor.owner};
    if (actor.is_there || actor.local) state.pid = actor.pid;
    state.life = waits                           ? ActorState::Life::restarting
                 : actor.is_there                ? ActorState::Life::alive
                 : actor.address.incarnation > 0 ? ActorState::Life::restarting
                                                 : ActorState::Life::starting;
    if (actor.restarts) state.last_end = actor.restarts->last_end;
    if (!waits && !actor.local) {
      state.node = nodes_[actor.reservation.node].name;
      state.devices.assign(actor.reservation.held.devices.begin(),
                           actor.reservation.held.devices.end());
      state.resources = actor.reservation.held.amounts;
      const auto process = processes_.find(actor.process);
      if (process != processes_.end()) {
        state.log_path = logs_.of_process(process->second.name, state.node);
      }
    }
    reply.actors.push_back(std::move(state));
  }
  for (const auto& end : ended_.latest(ended)) reply.ended.push_back(ended_actor(end));
  std::ranges::sort(reply.actors, {}, &ActorState::id);
  return reply;
}

std::vector<GroupState> ActorRegistry::group_states() const {
  std::lock_guard lock(mutex_);
  std::vector<GroupState> states;
  for (auto& group : placement_.groups()) {
    GroupState state{std::move(group), {}, {}};
    for (auto& room : placement_.room_in(state.group.id)) {
      state.free.push_back(std::move(room.free));
      state.actors.push_back(room.actors);
    }
    states.push_back(std::move(state));
  }
  return states;
}

std::optional<ActorRegistry::ActorLog> ActorRegistry::log_of(std::string_view actor) const {
  std::lock_guard lock(mutex_);
  const auto named = names_.find(actor);
  ActorId id = 0;
  if (named != names_.end()) {
    id = named->second;
  } else {  // "7", or a name that was made from type and id: "Worker-7"
    const auto digits = actor.substr(actor.rfind('-') + 1);
    std::from_chars(digits.data(), digits.data() + digits.size(), id);
  }
  const auto is_meant = [&](ActorId number, const std::string& name) {
    return actor == name || actor == std::to_string(number);
  };
  const auto found = actors_.find(id);
  if (found != actors_.end() && is_meant(id, found->second.address.name)) {
    const Actor& living = found->second;
    if (living.local) return ActorLog{"", "driver"};
    if (living.restarts && living.restarts->is_waiting) return living.restarts->last_log;
    const std::string& node = nodes_[living.reservation.node].name;
    const auto process = processes_.find(living.process);
    if (process == processes_.end()) return ActorLog{"", node};
    return ActorLog{logs_.of_process(process->second.name, node), node};
  }
  for (const auto& end : ended_.latest(remembered_ends)) {
    if (is_meant(end.down.id, end.down.name)) return ActorLog{end.down.log_path, end.down.node};
  }
  return std::nullopt;
}

Resources ActorRegistry::free_on(std::size_t node) const {
  std::lock_guard lock(mutex_);
  return placement_.free_on(node);
}

}  // namespace troupe
