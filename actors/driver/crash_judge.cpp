#include "actors/driver/crash_judge.hpp"

#include <algorithm>
#include <iterator>

#include "actors/api/losses.hpp"

namespace troupe {

void CrashJudge::steps_ended(const Incarnations& served) {
  served_ = served;
  under_way_.clear();
  is_counted_ = false;
}

void CrashJudge::add_under_way(const std::vector<std::uint64_t>& requests) {
  under_way_.insert(under_way_.end(), requests.begin(), requests.end());
}

bool CrashJudge::is_crash(const std::vector<ActorDown>& losses) {
  std::vector<ActorDown> of_steps;
  std::ranges::copy_if(losses, std::back_inserter(of_steps), [this](const ActorDown& down) {
    const auto served = served_.find(down.id);
    return served != served_.end() && served->second == down.incarnation;
  });
  if (is_counted_ || of_steps.empty() || !began_inside(of_steps)) return false;
  is_counted_ = true;
  return true;
}

}  // namespace troupe
