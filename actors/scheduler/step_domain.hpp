#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "actors/scheduler/scheduler.hpp"
#include "actors/scheduler/under_way.hpp"
#include "actors/step/step_plan.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Replicas whose experts exchange tokens, and which therefore step together: whenever one of them
/// has tokens to compute, each gets a plan of the same step number, an empty one if it has no
/// tokens. A single replica is a domain of one. One thread at a time.
class StepDomain {
 public:
  /// At least one replica; all new, with the same limit of steps in flight.
  explicit StepDomain(std::vector<Scheduler> replicas) : replicas_(std::move(replicas)) {}

  Scheduler& replica(std::size_t index) { return replicas_[index]; }
  const Scheduler& replica(std::size_t index) const { return replicas_[index]; }

  /// Returns the next step, one plan for each replica in order; empty if no replica has tokens to
  /// plan. `now_us`: see Scheduler::plan.
  std::vector<StepPlan> plan(std::int64_t now_us = 0);

  /// Takes the results of the oldest step in flight, one per replica in order; returns the updates
  /// of all. Errors: those of Scheduler::apply; the domain is void then.
  Result<std::vector<SequenceUpdate>> apply(std::vector<StepResult> results);

  /// See Scheduler::restart; of all replicas.
  LostWork restart(std::uint32_t epoch);

  /// Ends these requests, whatever replica has them, without updates.
  void abort(std::span<const std::uint64_t> requests);
  /// The requests that steps in flight compute.
  std::vector<UnderWay> under_way() const;
  /// See Scheduler::abort_waiting; over all replicas.
  std::vector<std::uint64_t> abort_waiting();
  std::size_t live() const;
  std::size_t waiting() const;
  std::size_t running() const;
  double kv_use() const;  ///< share of the KV blocks in use, 0..1
  SchedulerCounters counters() const;
  std::size_t in_flight() const { return replicas_.front().in_flight(); }  ///< steps

 private:
  std::vector<Scheduler> replicas_;
};

}  // namespace troupe
