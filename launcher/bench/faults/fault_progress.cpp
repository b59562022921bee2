#include "launcher/bench/faults/fault_progress.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

FaultProgress::FaultProgress(FaultRecord record, const std::vector<ActorAddress>& victims,
                             Clock::time_point made)
    : record_(std::move(record)), made_(made) {
  for (const ActorAddress& victim : victims) waiting_.emplace(victim.id, victim.incarnation);
}

void FaultProgress::note_down(const ActorDown& down, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  noticed_.try_emplace(down.id, seconds_after(now));
}

bool FaultProgress::is_noticed() const {
  const std::lock_guard lock(mutex_);
  return !noticed_.empty();
}

void FaultProgress::note(const EngineRecovery& recovery) {
  if (!recovery.seconds) return;
  // The recovery counts from the first of its losses; one that is no victim may have come before.
  std::optional<double> first;
  bool is_of_fault = false;
  {
    const std::lock_guard lock(mutex_);
    for (const ActorDown& down : recovery.lost) {
      const auto victim = waiting_.find(down.id);
      is_of_fault |= victim != waiting_.end() && down.incarnation >= victim->second;
      const auto noticed = noticed_.find(down.id);
      if (noticed != noticed_.end()) first = std::min(first.value_or(1e18), noticed->second);
    }
  }
  if (!is_of_fault) return;
  for (const ActorDown& down : recovery.lost) waiting_.erase(down.id);
  record_.lost += recovery.lost.size();
  record_.sequences += recovery.sequences;
  record_.kv_tokens += recovery.lost_work.kv_tokens;
  record_.in_flight_tokens += recovery.lost_work.in_flight_tokens;
  record_.unsaved_tokens += recovery.unsaved_tokens;
  const double until = first.value_or(0) + *recovery.seconds;
  record_.next_step_seconds = std::max(record_.next_step_seconds.value_or(0), until);
}

void FaultProgress::note(const EngineDomainChange& change) {
  if (change.kind != EngineDomainChange::Kind::dropped) return;
  bool is_of_fault = false;
  for (const ActorId actor : change.actors) is_of_fault |= waiting_.erase(actor) > 0;
  if (!is_of_fault) return;
  ++record_.dropped_domains;
  record_.lost += change.actors.size();
  record_.unsaved_tokens += change.unsaved_tokens;
}

FaultRecord FaultProgress::record() const {
  FaultRecord record = record_;
  const std::lock_guard lock(mutex_);
  for (const auto& [actor, seconds] : noticed_) {
    record.noticed_ms = std::min(record.noticed_ms.value_or(1e18), seconds * 1e3);
  }
  return record;
}

}  // namespace troupe
