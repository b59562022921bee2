#include "actors/driver/crash_judge.hpp"

#include "actors/api/losses.hpp"

namespace troupe {

void CrashJudge::steps_ended(const Incarnations& served) {
  served_ = served;
  under_way_.clear();
  is_counted_ = false;
}

void CrashJudge::add_under_way(const std::vector<UnderWay>& requests) {
  under_way_.insert(under_way_.end(), requests.begin(), requests.end());
}

bool CrashJudge::has(const Incarnations& incarnations, const ActorDown& down) {
  const auto found = incarnations.find(down.id);
  return found != incarnations.end() && found->second == down.incarnation;
}

bool CrashJudge::is_crash(const std::vector<ActorDown>& losses) {
  if (is_counted_) return false;
  std::vector<ActorDown> of_steps;
  bool one_hung = false;
  for (const ActorDown& down : losses) {
    if (!has(served_, down) || has(consequences_, down)) continue;
    one_hung |= has(hung_, down);
    of_steps.push_back(down);
  }
  is_counted_ = one_hung || (!of_steps.empty() && began_inside(of_steps));
  return is_counted_;
}

}  // namespace troupe
