#pragma once

#include <memory>
#include <string>
#include <vector>

#include "actors/api/engine_spec.hpp"
#include "launcher/bench/faults/fault_plan.hpp"
#include "launcher/bench/faults/fault_progress.hpp"
#include "launcher/bench/faults/saboteur.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Resident memory of a node's agent.
struct AgentMemory {
  std::string node;
  int pid = 0;
  std::uint64_t bytes = 0;
};

/// Makes faults in the processes of an engine, one after the other, by a Saboteur that is spawned
/// on the victim's node for each, and follows what comes of them. One thread at a time.
class FaultInjector {
 public:
  /// `cluster` and `options` outlive the object.
  FaultInjector(Cluster& cluster, const FaultOptions& options)
      : cluster_(cluster), options_(options) {}
  ~FaultInjector();
  FaultInjector(const FaultInjector&) = delete;
  FaultInjector& operator=(const FaultInjector&) = delete;

  /// Refuses what cannot be done on a node, as link without root. Call it while the workers serve.
  /// Errors name the node.
  Result<void> check(const std::vector<FaultKind>& kinds);

  /// Chooses a victim, and makes the fault. False if there is nobody at the moment, or if the
  /// victim has just ended: try again later. Errors: those of the node's Saboteur.
  Result<bool> make(const PlannedFault& fault, double at_seconds);
  /// The fault under way; none before the first, or once it has been taken.
  const FaultProgress* current() const { return progress_.get(); }
  void note(const EngineRecovery& recovery);
  void note(const EngineDomainChange& change);
  /// Takes the fault under way, however far it has come.
  FaultRecord take();
  /// Why the fault could not be made, if its node has told that only later; empty if it has not.
  std::string problem() const;

  /// The agents of all living nodes; those that do not answer in time are left out.
  std::vector<AgentMemory> agents();

 private:
  struct Victim;
  struct Followed;

  std::vector<Victim> candidates(FaultKind kind) const;
  /// Asks a Saboteur on that node.
  Result<void> check_on(const std::string& node, bool has_link, const std::vector<int>& hung_pids);
  Result<ActorHandle<Saboteur>> saboteur_on(const std::string& node);
  /// The same, once it is connected with this process.
  Result<ActorHandle<Saboteur>> ready_saboteur_on(const std::string& node);
  Result<void> hit(const ActorHandle<Saboteur>& saboteur, FaultKind kind, int pid);

  Cluster& cluster_;
  const FaultOptions& options_;
  std::shared_ptr<FaultProgress> progress_;
  std::shared_ptr<Followed> followed_;  ///< what the answer of the fault's Saboteur tells
  ActorHandle<Saboteur> saboteur_;      ///< of the fault under way
  std::vector<WatchToken> watches_;     ///< end before progress_, which their callbacks use
};

}  // namespace troupe
