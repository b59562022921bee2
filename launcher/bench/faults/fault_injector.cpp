#include "launcher/bench/faults/fault_injector.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <mutex>
#include <utility>

#include "actors/executor/executor.hpp"
#include "actors/worker/worker.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using Clock = FaultProgress::Clock;

constexpr auto spawn_limit = 20s;
constexpr auto answer_limit = 20s;

bool is_worker(const Cluster::ActorInfo& actor) { return actor.address.type == Worker::actor_type; }
bool is_executor(const Cluster::ActorInfo& actor) {
  return actor.address.type == Executor::actor_type;
}

}  // namespace

/// One that a fault can have, and all that goes with it.
struct FaultInjector::Victim {
  std::string name;
  std::string node;
  int pid = 0;
  std::vector<ActorAddress> actors;
};

/// The answer to the call that makes a fault.
struct FaultInjector::Followed {
  std::mutex mutex;
  std::string problem;
};

FaultInjector::~FaultInjector() { watches_.clear(); }

std::vector<FaultInjector::Victim> FaultInjector::candidates(FaultKind kind) const {
  std::vector<Victim> victims;
  const auto actors = cluster_.actors();
  if (!takes_node(kind)) {
    for (const auto& actor : actors) {
      const bool fits = kind == FaultKind::executor ? is_executor(actor) : is_worker(actor);
      if (fits) victims.push_back({actor.address.name, actor.node, actor.pid, {actor.address}});
    }
  } else {
    for (const auto& node : cluster_.nodes()) {
      if (!node.alive) continue;
      Victim victim{"agent-" + node.spec.name, node.spec.name, node.agent_pid, {}};
      for (const auto& actor : actors) {
        const bool is_part = is_worker(actor) || is_executor(actor);
        if (is_part && actor.node == node.spec.name) victim.actors.push_back(actor.address);
      }
      if (!victim.actors.empty()) victims.push_back(std::move(victim));
    }
  }
  std::ranges::sort(victims, {}, &Victim::name);
  return victims;
}

Result<ActorHandle<Saboteur>> FaultInjector::saboteur_on(const std::string& node) {
  auto spawning = cluster_.spawn<Saboteur>({.node = node});
  return spawning.get(spawn_limit);
}

Result<ActorHandle<Saboteur>> FaultInjector::ready_saboteur_on(const std::string& node) {
  TROUPE_TRY(const auto saboteur, saboteur_on(node));
  // The first call makes the connection, which is no part of a fault's time.
  TROUPE_TRY([[maybe_unused]] const std::uint64_t bytes,
             saboteur.call<&Saboteur::agent_memory>().get(answer_limit));
  return saboteur;
}

Result<void> FaultInjector::check(const std::vector<FaultKind>& kinds) {
  const auto has = [&](FaultKind kind) { return std::ranges::find(kinds, kind) != kinds.end(); };
  std::map<std::string, std::vector<int>> hung;  // pids, by node
  if (has(FaultKind::hang)) {
    for (const Victim& victim : candidates(FaultKind::hang)) {
      hung[victim.node].push_back(victim.pid);
    }
  }
  for (const auto& node : cluster_.nodes()) {
    const auto& pids = hung[node.spec.name];
    if (!has(FaultKind::link) && pids.empty()) continue;
    TROUPE_CHECK(check_on(node.spec.name, has(FaultKind::link), pids));
  }
  return {};
}

Result<void> FaultInjector::check_on(const std::string& node, bool has_link,
                                     const std::vector<int>& hung_pids) {
  TROUPE_TRY(const auto saboteur, saboteur_on(node));
  Result<void> checked;
  if (has_link) {
    checked = saboteur.call<&Saboteur::check_link>(options_.link_device).get(answer_limit);
  }
  for (const int pid : hung_pids) {
    if (checked.ok()) checked = saboteur.call<&Saboteur::check_hang>(pid).get(answer_limit);
  }
  saboteur.call<&Saboteur::leave>();
  return checked;
}

Result<bool> FaultInjector::make(const PlannedFault& fault, double at_seconds) {
  const std::vector<Victim> victims = candidates(fault.kind);
  if (victims.empty()) return false;
  const Victim& victim = victims[fault.draw % victims.size()];
  auto ready = ready_saboteur_on(victim.node);
  if (!ready.ok()) {
    // The node has just been lost.
    if (is_actor_gone(ready.error().code)) return false;
    return std::move(ready).error();
  }
  saboteur_ = *std::move(ready);
  FaultRecord record{.kind = fault.kind,
                     .victim = victim.name,
                     .node = victim.node,
                     .pid = victim.pid,
                     .at_seconds = at_seconds};
  // Made before the call, so the time of the call is part of what is measured.
  progress_ = std::make_shared<FaultProgress>(std::move(record), victim.actors, Clock::now());
  for (const ActorAddress& actor : victim.actors) {
    watches_.push_back(cluster_.watch(actor, [progress = progress_](const ActorDown& down) {
      progress->note_down(down, Clock::now());
    }));
  }
  const Result<void> done = hit(saboteur_, fault.kind, victim.pid);
  if (done.ok()) return true;
  (void)take();
  if (done.error().code == ErrorCode::not_found) return false;
  return done.error();
}

Result<void> FaultInjector::hit(const ActorHandle<Saboteur>& saboteur, FaultKind kind, int pid) {
  followed_ = std::make_shared<Followed>();
  if (!takes_node(kind) && kind != FaultKind::hang) {
    const int number = kind == FaultKind::stop ? SIGSTOP : SIGKILL;
    return saboteur.call<&Saboteur::signal>(pid, number).get(answer_limit);
  }
  Future<void> answer = [&] {
    switch (kind) {
      case FaultKind::hang:
        return saboteur.call<&Saboteur::hang>(pid);
      case FaultKind::agent:
        return saboteur.call<&Saboteur::kill_agent>();
      case FaultKind::node:
        return saboteur.call<&Saboteur::kill_node>();
      case FaultKind::freeze:
        return saboteur.call<&Saboteur::freeze_node>(options_.outage_seconds);
      default:
        return saboteur.call<&Saboteur::cut_link>(options_.link_device, options_.outage_seconds);
    }
  }();
  // The Saboteur ends with its node; an answer says why it does not. hang answers when it is over.
  answer.then([followed = followed_](const Result<void>& done) {
    if (done.ok() || is_actor_gone(done.error().code)) return;
    const std::lock_guard lock(followed->mutex);
    followed->problem = done.error().message;
  });
  return {};
}

std::string FaultInjector::problem() const {
  if (!followed_ || !progress_ || progress_->is_noticed()) return "";
  const std::lock_guard lock(followed_->mutex);
  return followed_->problem;
}

void FaultInjector::note(const EngineRecovery& recovery) {
  if (progress_) progress_->note(recovery);
}

void FaultInjector::note(const EngineDomainChange& change) {
  if (progress_) progress_->note(change);
}

FaultRecord FaultInjector::take() {
  watches_.clear();
  const FaultRecord record = progress_->record();
  progress_.reset();
  if (saboteur_) saboteur_.call<&Saboteur::leave>();
  saboteur_ = {};
  return record;
}

std::vector<AgentMemory> FaultInjector::agents() {
  std::vector<AgentMemory> agents;
  for (const auto& node : cluster_.nodes()) {
    if (!node.alive) continue;
    const auto saboteur = saboteur_on(node.spec.name);
    if (!saboteur.ok()) continue;
    const auto bytes = saboteur->call<&Saboteur::agent_memory>().get(answer_limit);
    saboteur->call<&Saboteur::leave>();
    if (bytes.ok()) agents.push_back({node.spec.name, node.agent_pid, *bytes});
  }
  return agents;
}

}  // namespace troupe
