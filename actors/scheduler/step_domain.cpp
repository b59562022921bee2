#include "actors/scheduler/step_domain.hpp"

#include <cassert>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>

namespace troupe {
namespace {

template <class Count>
std::size_t sum(const std::vector<Scheduler>& replicas, Count count) {
  return std::accumulate(
      replicas.begin(), replicas.end(), std::size_t{0},
      [&](std::size_t total, const Scheduler& replica) { return total + (replica.*count)(); });
}

}  // namespace

std::vector<StepPlan> StepDomain::plan(std::int64_t now_us) {
  std::vector<std::optional<StepPlan>> planned;
  bool any = false;
  for (Scheduler& replica : replicas_) {
    planned.push_back(replica.plan(now_us));
    any |= planned.back().has_value();
  }
  std::vector<StepPlan> plans;
  if (!any) return plans;
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    plans.push_back(planned[i] ? *std::move(planned[i]) : replicas_[i].plan_empty());
  }
  return plans;
}

Result<std::vector<SequenceUpdate>> StepDomain::apply(std::vector<StepResult> results) {
  assert(results.size() == replicas_.size());
  std::vector<SequenceUpdate> all;
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    TROUPE_TRY(auto updates, replicas_[i].apply(std::move(results[i])));
    std::move(updates.begin(), updates.end(), std::back_inserter(all));
  }
  return all;
}

LostWork StepDomain::restart(std::uint32_t epoch) {
  LostWork lost;
  for (Scheduler& replica : replicas_) lost.add(replica.restart(epoch));
  return lost;
}

void StepDomain::abort(std::span<const std::uint64_t> requests) {
  for (const std::uint64_t request : requests) {
    for (Scheduler& replica : replicas_) replica.abort(request);
  }
}

std::vector<UnderWay> StepDomain::under_way() const {
  std::vector<UnderWay> all;
  for (const Scheduler& replica : replicas_) {
    const std::vector<UnderWay> requests = replica.under_way();
    all.insert(all.end(), requests.begin(), requests.end());
  }
  return all;
}

std::vector<std::uint64_t> StepDomain::abort_waiting() {
  std::vector<std::uint64_t> ended;
  for (Scheduler& replica : replicas_) {
    const auto of_replica = replica.abort_waiting();
    ended.insert(ended.end(), of_replica.begin(), of_replica.end());
  }
  return ended;
}

std::size_t StepDomain::live() const { return sum(replicas_, &Scheduler::live); }
std::size_t StepDomain::waiting() const { return sum(replicas_, &Scheduler::waiting); }
std::size_t StepDomain::running() const { return sum(replicas_, &Scheduler::running); }

SchedulerCounters StepDomain::counters() const {
  SchedulerCounters all;
  for (const Scheduler& replica : replicas_) all.add(replica.counters());
  return all;
}

double StepDomain::kv_use() const {
  double used = 0;
  double all = 0;
  for (const Scheduler& replica : replicas_) {
    used += replica.blocks().blocks() - replica.blocks().free_blocks();
    all += replica.blocks().blocks();
  }
  return used / all;
}

}  // namespace troupe
