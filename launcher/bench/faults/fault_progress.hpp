#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/api/engine_spec.hpp"
#include "launcher/cli/fault_options.hpp"
#include "runtime/actor/actor_down.hpp"
#include "runtime/call/actor_address.hpp"

namespace troupe {

/// A fault that was made, and what came of it.
struct FaultRecord {
  FaultKind kind = FaultKind::worker;
  std::string victim;  ///< the actor, or the agent: "agent-h2"
  std::string node;
  int pid = 0;            ///< the actor's or the agent's
  double at_seconds = 0;  ///< since the faults began
  std::size_t lost = 0;   ///< processes of the engine that it took, by the first step after it
  std::optional<double> noticed_ms = {};         ///< until its first loss was reported
  std::optional<double> next_step_seconds = {};  ///< until the first step after the recovery
  std::uint64_t sequences = 0;                   ///< computed anew
  std::uint64_t kv_tokens = 0;                   ///< of these; see LostWork
  std::uint64_t in_flight_tokens = 0;            ///< see LostWork
  std::uint64_t unsaved_tokens = 0;              ///< see EngineRecovery
  std::size_t dropped_domains = 0;               ///< of an elastic job
  std::uint64_t driver_bytes = 0;                ///< resident memory of this process after it
};

/// Follows one fault from the moment before it was made until the job has recovered. What is
/// noticed is noted by the threads of the runtime; all else is called by one thread.
class FaultProgress {
 public:
  using Clock = std::chrono::steady_clock;

  /// `victims`: the actors of the engine that it takes.
  FaultProgress(FaultRecord record, const std::vector<ActorAddress>& victims,
                Clock::time_point made);

  /// An actor's end was reported. Callable from any thread.
  void note_down(const ActorDown& down, Clock::time_point now);
  /// Takes a recovery; those that have not ended, or of other losses, change nothing but the
  /// number of losses.
  void note(const EngineRecovery& recovery);
  /// Takes a step domain that is dropped: others go on without its actors.
  void note(const EngineDomainChange& change);
  /// True once each victim is in a recovery that has ended, or in a domain that is dropped.
  bool is_recovered() const { return waiting_.empty(); }
  /// True once the first loss is reported. Callable from any thread.
  bool is_noticed() const;
  Clock::time_point made() const { return made_; }

  /// All that is known by now.
  FaultRecord record() const;

 private:
  double seconds_after(Clock::time_point now) const {
    return std::chrono::duration<double>(now - made_).count();
  }

  FaultRecord record_;
  const Clock::time_point made_;
  std::unordered_map<ActorId, std::uint32_t> waiting_;  ///< victims not recovered, incarnations
  mutable std::mutex mutex_;                            ///< of noticed_
  std::unordered_map<ActorId, double> noticed_;         ///< seconds after made_
};

}  // namespace troupe
