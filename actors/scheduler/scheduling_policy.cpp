#include "actors/scheduler/scheduling_policy.hpp"

#include <array>
#include <limits>
#include <utility>

namespace troupe {
namespace {

constexpr std::int64_t no_deadline = std::numeric_limits<std::int64_t>::max() - 1;
constexpr std::int64_t too_late = std::numeric_limits<std::int64_t>::max();

}  // namespace

std::optional<SchedulingPolicy> scheduling_policy(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, SchedulingPolicy>, 4> policies = {
      {{"fcfs", SchedulingPolicy::fcfs},
       {"priority", SchedulingPolicy::priority},
       {"sjf", SchedulingPolicy::sjf},
       {"deadline", SchedulingPolicy::deadline}}};
  for (const auto& [known, policy] : policies) {
    if (name == known) return policy;
  }
  return std::nullopt;
}

SchedulingRank rank_of(SchedulingPolicy policy, const SchedulingFacts& facts) {
  SchedulingRank rank{0, facts.arrival, 0};
  switch (policy) {
    case SchedulingPolicy::fcfs:
      break;
    case SchedulingPolicy::priority:
      rank.rank = facts.priority;
      break;
    case SchedulingPolicy::sjf:
      rank.rank = facts.tokens + static_cast<std::int64_t>(facts.arrival);
      break;
    case SchedulingPolicy::deadline:
      rank.rank = facts.deadline_us ? *facts.deadline_us - facts.cost_us : no_deadline;
      break;
  }
  return rank;
}

SchedulingRank late_rank(SchedulingRank rank) {
  rank.rank = too_late;
  return rank;
}

bool is_too_late(const SchedulingRank& rank, std::int64_t now_us) { return rank.rank < now_us; }

}  // namespace troupe
