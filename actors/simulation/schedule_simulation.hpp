#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "actors/scheduler/scheduler.hpp"
#include "actors/simulation/schedule_trace.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// What a step takes, in place of a model. A step of shares i, each of n_i tokens that end at
/// position e_i, takes us_per_step + sum over i of (n_i * us_per_token + e_i * us_per_kv_token); in
/// a window group a share reads the last window + n_i - 1 positions at most, and of several groups
/// the mean counts. Swaps take nothing: they are copied meanwhile. Rounded to whole µs, for each
/// stage by itself. The defaults are about those of fable-moe on one CPU core.
struct StepCost {
  double us_per_step = 300.0;
  double us_per_token = 67.0;     ///< of each token computed
  double us_per_kv_token = 0.25;  ///< of each position whose keys and values a sequence reads
  double us_per_plan = 100.0;     ///< from a plan to the begin of its step, if the workers are idle
  std::int32_t stages = 1;        ///< of a pipeline; each takes an equal part of the step
};

/// What became of one request; times on the clock of arrivals.
struct RequestOutcome {
  std::int64_t begin_us = 0;        ///< of the first step that it was in
  std::int64_t first_token_us = 0;  ///< its result is there
  std::int64_t end_us = 0;
  std::int64_t alone_us = 0;  ///< from arrival to end if no other request ever came
  std::int32_t tokens = 0;    ///< that came

  friend bool operator==(const RequestOutcome&, const RequestOutcome&) = default;
};

/// What a simulation brought.
struct ScheduleOutcome {
  std::vector<RequestOutcome> requests;  ///< in the order of the trace
  std::int64_t steps = 0;
  std::int64_t computed_tokens = 0;  ///< with those computed again after a preemption
  std::int64_t makespan_us = 0;      ///< from time 0 to the last end
  SchedulerCounters counters;
};

/// Lets a Scheduler plan the trace on a simulated clock: each request is added when it arrives,
/// plans are made whenever the scheduler makes one, steps run one after the other (in a pipeline,
/// stage by stage), and each result is applied when its cost has passed. Sampled tokens are a
/// function of request and position, so that preemption and prefix caching meet what they would
/// meet with a model. The same arguments give the same outcome.
///
/// Errors: invalid_argument for a config that Scheduler::make refuses, costs outside 0..1e6, stages
/// outside 1..1024, and a request (named by its index) that is out of range, comes
/// before the one ahead of it, or that the scheduler refuses; internal if the scheduler errs.
Result<ScheduleOutcome> simulate_schedule(const SchedulerConfig& config, const StepCost& cost,
                                          std::span<const SimulatedRequest> trace);

}  // namespace troupe
