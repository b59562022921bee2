#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "actors/scheduler/scheduler.hpp"
#include "actors/simulation/schedule_trace.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The time of a step, in place of a model. A step of shares i, each of n_i tokens that end at
/// position e_i, takes us_per_step + sum over i of (n_i * us_per_token + e_i * us_per_kv_token). In
/// a window group a share reads at most the last window + n_i - 1 positions; of several groups the
/// mean counts. Swaps take no time: they overlap with the step. Rounded to whole µs for each stage.
/// The defaults are roughly those of fable-moe on one CPU core.
struct StepCost {
  double us_per_step = 300.0;
  double us_per_token = 67.0;     ///< of each token computed
  double us_per_kv_token = 0.25;  ///< for each position whose KV a sequence reads
  double us_per_plan = 100.0;     ///< from a plan to the beginning of its step, if the workers are
                                  ///< idle
  std::int32_t stages = 1;        ///< of a pipeline; each takes an equal part of the step
};

/// The outcome of one request; times on the clock of arrivals.
struct RequestOutcome {
  std::int64_t begin_us = 0;        ///< of its first step
  std::int64_t first_token_us = 0;  ///< when its result is there
  std::int64_t end_us = 0;
  std::int64_t alone_us = 0;  ///< from arrival to end if there were no other requests
  std::int32_t tokens = 0;    ///< generated

  friend bool operator==(const RequestOutcome&, const RequestOutcome&) = default;
};

/// The outcome of a simulation.
struct ScheduleOutcome {
  std::vector<RequestOutcome> requests;  ///< in the order of the trace
  std::int64_t steps = 0;
  std::int64_t computed_tokens = 0;  ///< including those recomputed after a preemption
  std::int64_t makespan_us = 0;      ///< from time 0 to the last end
  SchedulerCounters counters;
};

/// Lets a Scheduler plan the trace on a simulated clock: each request is added when it arrives,
/// plans are made whenever the scheduler makes one, steps run one after the other (in a pipeline,
/// stage by stage), and each result is applied when its cost has passed. Sampled tokens are a
/// function of request and position, so that preemption and prefix caching meet the same tokens as
/// with a model. The same arguments give the same outcome.
///
/// Errors: invalid_argument for a config that Scheduler::make refuses, costs outside 0..1e6, stages
/// outside 1..1024, and a request (named by its index) that is out of range, arrives before the one
/// preceding it, or is refused by the scheduler; internal if the scheduler errs.
Result<ScheduleOutcome> simulate_schedule(const SchedulerConfig& config, const StepCost& cost,
                                          std::span<const SimulatedRequest> trace);

}  // namespace troupe
