#pragma once

#include <cstdint>
#include <span>

#include "actors/simulation/schedule_simulation.hpp"
#include "actors/telemetry/distribution.hpp"

namespace troupe {

/// Jain's index of fairness (R. Jain, D. Chiu, W. Hawe 1984): (sum x)^2 / (n * sum x^2), from 1/n
/// (one has everything) to 1 (all have the same); 1 for none and for zeros.
double jain_index(std::span<const double> values);

/// Figures of an outcome for comparing policies.
struct ScheduleTotals {
  double makespan_s = 0.0;
  double output_tokens_per_s = 0.0;  ///< over the makespan
  std::int64_t output_tokens = 0;
  std::int64_t steps = 0;
  std::int64_t computed_tokens = 0;
  Distribution queueing_us;     ///< from arrival to the beginning of the first step
  Distribution first_token_us;  ///< TTFT: from the arrival
  Distribution end_to_end_us;   ///< from the arrival to the last token
  double goodput = 0.0;         ///< share of requests that met all their due times
  std::int64_t deadline_misses = 0;
  /// Jain's index of the slowdowns: end-to-end time over the request's time alone.
  double fairness = 1.0;
  double worst_slowdown = 0.0;
  std::uint64_t prefix_tokens = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t swaps = 0;
};

/// `outcome` must be that of `trace`.
ScheduleTotals totals_of(std::span<const SimulatedRequest> trace, const ScheduleOutcome& outcome);

}  // namespace troupe
