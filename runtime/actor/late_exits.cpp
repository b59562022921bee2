#include "runtime/actor/late_exits.hpp"

#include <algorithm>

namespace troupe {

using std::chrono::milliseconds;

void LateExits::look(Clock::time_point now) {
  awake_ += std::clamp<Clock::duration>(now - seen_, Clock::duration::zero(), 2 * Deadline::slice);
  seen_ = now;
}

LateExits::Exit* LateExits::first_awaited() {
  for (; !awaited_.empty(); awaited_.pop_front()) {
    const auto found = exits_.find(awaited_.front().actor);
    if (found == exits_.end() || found->second.is_given_up) continue;
    // Otherwise it is that of its next incarnation.
    if (found->second.limit == awaited_.front().limit) return &found->second;
  }
  return nullptr;
}

void LateExits::ask(ActorId actor, const std::string& reason, Clock::time_point now) {
  look(now);
  const auto limit = awake_ + grace_;
  if (exits_.try_emplace(actor, Exit{limit, reason}).second) awaited_.push_back({actor, limit});
}

bool LateExits::note_end(ActorId actor) {
  const bool was_given_up = is_given_up(actor);
  exits_.erase(actor);
  return !was_given_up;
}

std::vector<LateExits::Late> LateExits::take_late(Clock::time_point now) {
  look(now);
  std::vector<Late> late;
  for (Exit* first = first_awaited(); first != nullptr; first = first_awaited()) {
    if (first->limit > awake_) break;
    first->is_given_up = true;
    late.push_back({awaited_.front().actor, first->reason});
  }
  return late;
}

bool LateExits::is_given_up(ActorId actor) const {
  const auto found = exits_.find(actor);
  return found != exits_.end() && found->second.is_given_up;
}

std::optional<milliseconds> LateExits::left(Clock::time_point now) {
  look(now);
  const Exit* const first = first_awaited();
  if (first == nullptr) return std::nullopt;
  return std::chrono::ceil<milliseconds>(
      std::clamp<Clock::duration>(first->limit - awake_, Clock::duration::zero(), Deadline::slice));
}

}  // namespace troupe
