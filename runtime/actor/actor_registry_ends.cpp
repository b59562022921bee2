#include <algorithm>
#include <iterator>

#include "runtime/actor/actor_registry.hpp"

namespace troupe {
namespace {

/// Erases an actor of a group, and the group with its last one.
template <class ActorsOfGroups>
void erase(ActorsOfGroups& actors, PlacementGroupId group, ActorId actor) {
  const auto found = actors.find(group);
  found->second.erase(actor);
  if (found->second.empty()) actors.erase(found);
}

}  // namespace

// The ends of actors, processes and nodes, and what follows them.

std::vector<ActorDown> ActorRegistry::on_failed(const ActorFailed& failed) {
  AddressCallback done;
  Error error;
  {
    std::unique_lock lock(mutex_);
    const auto found = actors_.find(failed.actor);
    if (found == actors_.end()) return {};
    if (found->second.hosted) done = std::exchange(found->second.hosted->done, nullptr);
    if (!done && found->second.restarts) {
      lock.unlock();
      return remove_all(std::span(&failed.actor, 1), DownCause::not_restarted, 0,
                        fmt::format("could not be started again: {}", failed.message));
    }
    error = fail(failed.code, "actor '{}' ({}) could not be made: {}", found->second.address->name,
                 found->second.address->type, failed.message);
    remove(found);
  }
  if (done) done(std::move(error));
  return {};
}

std::vector<ActorDown> ActorRegistry::on_ended(const ActorEnded& ended) {
  return remove_all(std::span(&ended.actor, 1),
                    ended.exited ? DownCause::exited : DownCause::stopped, 0,
                    ended.exited ? fmt::format("ended itself: {}", ended.reason) : "was stopped");
}

std::vector<ActorDown> ActorRegistry::on_process_stuck(const ProcessEnded& stuck) {
  const std::string what = fmt::format(
      "was killed and does not end ({}): it waits in the kernel, as for a file server or a GPU's "
      "driver that does not answer. What it held is not used again until it has ended: mend that, "
      "or restart its host",
      stuck.survives);
  std::vector<ActorId> living;
  std::vector<ActorId> waiting;  // their end is known, and their restarts wait for the process's
  {
    std::lock_guard lock(mutex_);
    const auto found = processes_.find(stuck.process);
    if (found == processes_.end()) return {};
    Process& process = found->second;
    close(process);
    process.is_stuck = true;
    living.assign(process.actors.begin(), process.actors.end());
    std::ranges::sort(living);
    for (const ActorId id : living) actors_.at(id).pid = stuck.pid;
    for (const DueRestart& due : std::exchange(process.restarts, {})) {
      const auto actor = actors_.find(due.actor);
      if (actor == actors_.end() || actor->second.address->incarnation + 1 != due.incarnation)
        continue;
      actor->second.count_incarnation(1);
      waiting.push_back(due.actor);
    }
  }
  auto downs = remove_all(living, stuck.unresponsive ? DownCause::unresponsive : DownCause::signal,
                          stuck.code, what);
  auto not_restarted = remove_all(waiting, DownCause::not_restarted, 0,
                                  "could not be started again: its process " + what);
  std::ranges::move(not_restarted, std::back_inserter(downs));
  std::lock_guard lock(mutex_);
  if (const auto found = processes_.find(stuck.process); found != processes_.end()) {
    lose_bundles_of(found->second);
  }
  return downs;
}

void ActorRegistry::lose_bundles_of(Process& process) {
  for (PlacementTable::Reservation& held : process.held) {
    const auto lost = placement_.lose_bundle_of(held);
    const auto others = lost ? actors_of_group_.find(lost->group) : actors_of_group_.end();
    if (others == actors_of_group_.end()) continue;
    for (const ActorId id : others->second) {
      const Actor& other = actors_.at(id);
      if (other.hosted->reservation.bundle != lost) continue;
      Process& doomed = processes_.at(other.hosted->process);
      if (doomed.is_closed) continue;
      close(doomed);
      idle_.push_back({doomed.node, other.hosted->process, true});
    }
  }
}

std::vector<ActorDown> ActorRegistry::on_process_ended(const ProcessEnded& ended) {
  if (!ended.survives.empty()) return on_process_stuck(ended);
  const ExitStatus status{ended.signalled, ended.code};
  const std::string what =
      ended.pid == 0                 ? "could not be started"
      : ended.unresponsive           ? "no longer answered heartbeats and was killed"
      : !ended.memory_excess.empty() ? fmt::format("{} by its agent, as it used {}: reserve more",
                                                   status.describe(), ended.memory_excess)
      : !ended.out_of_memory.empty() ? fmt::format(
                                           "{} by the kernel, as memory had run out (oom_kill in "
                                           "{}): give it more, or split the model over more "
                                           "workers",
                                           status.describe(), ended.out_of_memory)
                                     : status.describe();
  const DownCause cause = ended.unresponsive ? DownCause::unresponsive
                          : ended.signalled  ? DownCause::signal
                                             : DownCause::exit_code;
  std::vector<ActorId> actors;
  {
    std::lock_guard lock(mutex_);
    const auto found = processes_.find(ended.process);
    if (found == processes_.end()) return {};
    close(found->second);  // first: no actor is admitted that would be missed below
    actors.assign(found->second.actors.begin(), found->second.actors.end());
    std::ranges::sort(actors);
    for (const ActorId id : actors) actors_.at(id).pid = ended.pid;
  }
  auto downs = remove_all(actors, cause, ended.code, what);
  std::lock_guard lock(mutex_);
  forget_process(ended.process);
  return downs;
}

std::vector<ActorDown> ActorRegistry::on_node_lost(std::size_t node, const std::string& how) {
  std::vector<ProcessId> processes;
  std::vector<ActorId> actors;
  {
    std::lock_guard lock(mutex_);
    placement_.remove_node(node);  // first: no actor is placed there that would be missed below
    processes.assign(processes_of_node_[node].begin(), processes_of_node_[node].end());
    for (const ProcessId id : processes) {
      Process& process = processes_.at(id);
      close(process);
      actors.insert(actors.end(), process.actors.begin(), process.actors.end());
    }
    std::ranges::sort(actors);
  }
  auto downs = remove_all(actors, DownCause::node_lost, 0, how);
  std::lock_guard lock(mutex_);
  for (const ProcessId id : processes) forget_process(id);
  return downs;
}

void ActorRegistry::forget_process(ProcessId id) {
  const auto found = processes_.find(id);
  if (found == processes_.end()) return;
  Process& process = found->second;
  for (const auto& reservation : process.held) placement_.release(reservation);
  restarts_.insert(restarts_.end(), process.restarts.begin(), process.restarts.end());
  processes_of_node_[process.node].erase(id);
  processes_.erase(found);
}

std::vector<ActorDown> ActorRegistry::remove_all(std::span<const ActorId> ended, DownCause cause,
                                                 int code, const std::string& what) {
  std::vector<ActorDown> downs;
  std::vector<std::pair<AddressCallback, Error>> never_started;
  {
    std::lock_guard lock(mutex_);
    for (const ActorId id : ended) {
      const auto found = actors_.find(id);
      if (found == actors_.end()) continue;
      Actor& actor = found->second;
      const bool is_starting = actor.hosted && actor.hosted->done;
      auto down = describe(actor, cause, code, is_starting ? what + " before it was ready" : what);
      if (is_starting) {
        never_started.emplace_back(std::exchange(actor.hosted->done, nullptr),
                                   Error{ErrorCode::actor_died, down.message});
      } else {
        const bool restarts = begin_restart(actor, down);
        if (!restarts) ended_.add(down);
        downs.push_back(std::move(down));
        if (restarts) continue;
      }
      remove(found);
    }
  }
  for (auto& [done, error] : never_started) done(std::move(error));
  return downs;
}

ActorDown ActorRegistry::describe(const Actor& actor, DownCause cause, int code,
                                  const std::string& what) const {
  ActorDown down;
  down.id = actor.address->id;
  down.name = actor.address->name;
  down.type = actor.address->type;
  down.incarnation = actor.address->incarnation;
  down.node = "driver";
  down.pid = actor.pid;
  down.cause = cause;
  down.code = code;
  if (actor.hosted) {
    const auto& held = actor.hosted->reservation;
    down.node = nodes_[held.node].name;
    down.devices = held.held.devices;
    if (const auto process = processes_.find(actor.hosted->process); process != processes_.end()) {
      down.log_path = logs_.of_process(process->second.name, down.node);
    }
  }
  const std::string who = fmt::format("actor '{}' ({}) on {}{}", down.name, down.type, down.node,
                                      down.pid != 0 ? fmt::format(", pid {},", down.pid) : "");
  const auto its_log = [](const std::string& path) {
    return path.empty() ? "" : fmt::format("; its log is {}", path);
  };
  if (cause == DownCause::node_lost) {  // point a person at the agent's log
    down.message = fmt::format("the agent of '{}' {}{}; {} ended with it", down.node, what,
                               its_log(logs_.of_agent(down.node)), who);
  } else {
    down.message = fmt::format("{} {}{}", who, what, its_log(down.log_path));
  }
  return down;
}

void ActorRegistry::remove(Actors::iterator found) {
  Actor& actor = found->second;
  if (actor.named) names_.erase(actor.address->name);
  if (!actor.is_local()) leave_process(actor);
  if (actor.restarts && actor.restarts->is_waiting) --waiting_;
  if (const auto owner = actors_.find(actor.owner()); owner != actors_.end()) {
    owner->second.owned->erase(found->first);
  }
  lose_owned(actor);
  if (actor.restarts && actor.restarts->options.bundle) {
    erase(restartable_of_group_, actor.restarts->options.bundle->group, found->first);
  }
  if (actor.restarts) {
    std::ranges::move(actor.restarts->arguments.objects, std::back_inserter(unneeded_objects_));
  }
  actors_.erase(found);
}

void ActorRegistry::lose_owned(Actor& owner) {
  const auto owned = std::move(owner.owned);
  if (!owned) return;
  for (const ActorId id : *owned) {
    Actor& actor = actors_.at(id);
    actor.hosted->owner = 0;
    if (std::exchange(actor.named, false)) names_.erase(actor.address->name);
    orphans_.push_back(id);
  }
}

void ActorRegistry::leave_process(Actor& actor, bool until_its_end) {
  if (actor.restarts && actor.restarts->is_waiting) return;
  const ActorId id = actor.address->id;
  if (actor.hosted->reservation.bundle) leave_group(id, actor.hosted->reservation.bundle->group);
  Process& process = processes_.at(actor.hosted->process);
  process.actors.erase(id);
  if (until_its_end || process.is_stuck) {
    process.held.push_back(actor.hosted->reservation);
  } else {
    placement_.release(actor.hosted->reservation);
  }
  if (!process.actors.empty() || process.is_closed) return;
  close(process);
  idle_.push_back({process.node, actor.hosted->process});
}

void ActorRegistry::leave_group(ActorId actor, PlacementGroupId group) {
  erase(actors_of_group_, group, actor);
}

bool ActorRegistry::begin_restart(Actor& actor, ActorDown& down) {
  if (!actor.restarts || down.cause == DownCause::stopped) return false;
  if (down.cause == DownCause::exited && !actor.restarts->options.restarts_after_exit) return false;
  const auto now = RestartBudget::Clock::now();
  const auto delay = actor.restarts->budget.take(now);
  if (!delay) return false;
  // A process that was this actor's alone ends now, and until then holds its devices and ports.
  const auto process = processes_.find(actor.hosted->process);  // none if it waits for a restart
  const bool ends = down.cause == DownCause::exited && process != processes_.end() &&
                    process->second.actors.size() == 1;
  leave_process(actor, ends);
  if (!std::exchange(actor.restarts->is_waiting, true)) ++waiting_;
  actor.restarts->last_end = down.message;
  actor.restarts->last_log = {down.log_path, down.node};
  actor.is_there = false;
  lose_owned(actor);
  auto& restarts = ends ? process->second.restarts : restarts_;
  restarts.push_back({actor.address->id, actor.address->incarnation + 1, now + *delay});
  down.restarts = true;
  down.message += delay->count() == 0
                      ? "; it is started again"
                      : fmt::format("; it is started again in {} ms", delay->count());
  return true;
}

std::vector<ObjectSharePtr> ActorRegistry::take_unneeded_objects() {
  std::lock_guard lock(mutex_);
  return std::exchange(unneeded_objects_, {});
}

std::vector<DueRestart> ActorRegistry::take_restarts() {
  std::lock_guard lock(mutex_);
  return std::exchange(restarts_, {});
}

std::vector<ActorId> ActorRegistry::take_orphans() {
  std::lock_guard lock(mutex_);
  return std::exchange(orphans_, {});
}

std::vector<ActorDown> ActorRegistry::forbid_restarts(ActorId id) {
  {
    std::lock_guard lock(mutex_);
    const auto found = actors_.find(id);
    if (found == actors_.end() || !found->second.restarts) return {};
    found->second.restarts->budget.cancel();
    if (!found->second.restarts->is_waiting) return {};
  }
  return remove_all(std::span(&id, 1), DownCause::stopped, 0, "was stopped");
}

std::vector<ActorRegistry::ProcessPlace> ActorRegistry::take_idle_processes() {
  std::lock_guard lock(mutex_);
  return std::exchange(idle_, {});
}

}  // namespace troupe
