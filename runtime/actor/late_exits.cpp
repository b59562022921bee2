#include "runtime/actor/late_exits.hpp"

#include <algorithm>

namespace troupe {

using std::chrono::milliseconds;

void LateExits::ask(ActorId actor, const std::string& reason, Clock::time_point now) {
  exits_.try_emplace(actor, Exit{Deadline(grace_, now), reason});
}

bool LateExits::note_end(ActorId actor) {
  if (is_given_up(actor)) return false;
  exits_.erase(actor);
  return true;
}

std::vector<LateExits::Late> LateExits::take_late(Clock::time_point now) {
  std::vector<Late> late;
  for (auto& [actor, exit] : exits_) {
    if (exit.is_given_up || !exit.limit.is_over(now)) continue;
    exit.is_given_up = true;
    late.push_back({actor, exit.reason});
  }
  return late;
}

bool LateExits::is_given_up(ActorId actor) const {
  const auto found = exits_.find(actor);
  return found != exits_.end() && found->second.is_given_up;
}

std::optional<milliseconds> LateExits::left(Clock::time_point now) {
  std::optional<milliseconds> first;
  for (auto& [actor, exit] : exits_) {
    if (exit.is_given_up) continue;
    const auto until = std::chrono::ceil<milliseconds>(
        std::min<Clock::duration>(exit.limit.left(now), Deadline::slice));
    first = std::min(first.value_or(until), until);
  }
  return first;
}

}  // namespace troupe
