#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "runtime/actor/actor_down.hpp"
#include "runtime/call/actor_address.hpp"

namespace troupe {

/// Decides whether losses are a crash that counts against the requests which were under way: each
/// time that the steps of a domain end, at most one crash does, however many attempts to recover
/// follow and in whichever order its losses are reported. A plain class; one thread at a time.
class CrashJudge {
 public:
  /// The incarnations of the actors that serve steps.
  using Incarnations = std::unordered_map<ActorId, std::uint32_t>;

  /// The steps that these served have ended.
  void steps_ended(const Incarnations& served);
  /// Adds requests of the steps that have ended; the executor may tell them later.
  void add_under_way(const std::vector<std::uint64_t>& requests);
  const std::vector<std::uint64_t>& under_way() const { return under_way_; }

  /// True if these losses, all that are known by now, began inside a process that served the steps
  /// which ended last (began_inside). Not again until steps have ended again. Losses of other
  /// incarnations do not count: their processes had no requests.
  bool is_crash(const std::vector<ActorDown>& losses);

 private:
  Incarnations served_;
  std::vector<std::uint64_t> under_way_;
  bool is_counted_ = false;
};

}  // namespace troupe
