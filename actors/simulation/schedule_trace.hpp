#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe {

/// A request of a trace: its data for the scheduler, and the real length of its answer.
struct SimulatedRequest {
  std::int64_t arrival_us = 0;
  std::int32_t prompt_tokens = 1;
  std::int32_t max_tokens = 1;
  std::int32_t output_tokens = 1;  ///< 1..max_tokens; a stop token is the last if there are fewer
  std::int32_t priority = 0;       ///< lower goes first
  /// Requests of a family share their first `shared_tokens`; below 0: no family.
  std::int32_t prefix_family = -1;
  std::int32_t shared_tokens = 0;                  ///< 0..prompt_tokens
  std::optional<std::int64_t> first_token_due_us;  ///< on the clock of arrivals
  std::optional<std::int64_t> deadline_us;         ///< for the last token; known to the scheduler

  friend bool operator==(const SimulatedRequest&, const SimulatedRequest&) = default;
};

/// How a length varies around its mean.
enum class LengthSpread : std::uint8_t {
  fixed,
  uniform,    ///< 1 to twice the mean - 1
  lognormal,  ///< sigma 1: the median is 0.61 of the mean, one in a hundred is over 6 times it
};

/// The parameters of a random trace.
struct TraceSpec {
  std::int32_t requests = 256;
  double requests_per_s = 0.0;  ///< a Poisson process; 0: all come at time 0
  LengthSpread spread = LengthSpread::lognormal;
  std::int32_t mean_prompt_tokens = 256;
  std::int32_t mean_max_tokens = 128;
  std::int32_t max_sequence_tokens = 2048;  ///< limit on prompt plus max_tokens, which are cut to
                                            ///< it
  double stopping_share = 0.0;     ///< of requests that stop at a random token before max_tokens
  double prefix_share = 0.0;       ///< of requests with a common prefix, before their own prompt
  std::int32_t prefix_tokens = 0;  ///< of such a prefix
  std::int32_t prefix_families = 1;
  std::uint64_t seed = 0;
};

/// Returns the same trace for the same spec. Errors: invalid_argument naming a number out of range.
Result<std::vector<SimulatedRequest>> random_trace(const TraceSpec& spec);

/// When tokens are due, and which requests are urgent.
struct TraceTargets {
  std::int64_t first_token_us = 1'000'000;  ///< after the arrival
  std::int64_t each_token_us = 50'000;      ///< plus this for each token of max_tokens until the
                                            ///< end
  double urgent_share = 1.0;                ///< share of requests, chosen at random
  double patience = 1.0;                    ///< factor by which the others' times are longer
  std::uint64_t seed = 0;
};

/// Gives every request its two due times; urgent ones get priority 0, the others 1. Errors:
/// invalid_argument naming a number out of range.
Result<void> set_targets(const TraceTargets& targets, std::vector<SimulatedRequest>& trace);

}  // namespace troupe
