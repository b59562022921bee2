#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "actors/scheduler/under_way.hpp"
#include "runtime/actor/actor_down.hpp"
#include "runtime/call/actor_address.hpp"

namespace troupe {

/// Decides whether losses are a crash that counts against the requests which were under way: each
/// time that the steps of a domain end, at most one crash does, however many attempts to recover
/// follow and in whichever order its losses are reported. A rank that was killed since it hung has
/// crashed, too. A plain class; one thread at a time.
class CrashJudge {
 public:
  /// The incarnations of the actors that serve steps.
  using Incarnations = std::unordered_map<ActorId, std::uint32_t>;

  /// The steps that these served have ended.
  void steps_ended(const Incarnations& served);
  /// Adds requests of the steps that have ended; the executor may tell them later.
  void add_under_way(const std::vector<UnderWay>& requests);
  const std::vector<UnderWay>& under_way() const { return under_way_; }

  /// That incarnation is about to be killed, since it hangs.
  void note_hang(ActorId actor, std::uint32_t incarnation) { hung_[actor] = incarnation; }
  /// That incarnation is about to be killed after others were lost: that says nothing of a cause.
  void note_consequence(ActorId actor, std::uint32_t incarnation) {
    consequences_[actor] = incarnation;
  }

  /// True if these losses, all that are known by now, began inside a process that served the steps
  /// which ended last (began_inside), or are of one that hung. Not again until steps have ended
  /// again. Losses of other incarnations do not count: their processes had no requests.
  bool is_crash(const std::vector<ActorDown>& losses);

 private:
  static bool has(const Incarnations& incarnations, const ActorDown& down);

  Incarnations served_;
  Incarnations hung_, consequences_;  ///< the latest of each actor
  std::vector<UnderWay> under_way_;
  bool is_counted_ = false;
};

}  // namespace troupe
