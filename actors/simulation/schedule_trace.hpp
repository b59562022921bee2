#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe {

/// A request of a trace: what the scheduler is told of it, and how long its answer really is.
struct SimulatedRequest {
  std::int64_t arrival_us = 0;
  std::int32_t prompt_tokens = 1;
  std::int32_t max_tokens = 1;
  std::int32_t output_tokens = 1;  ///< 1..max_tokens; a stop token is the last if there are fewer
  std::int32_t priority = 0;       ///< lower goes first
  /// Requests of a family have their first `shared_tokens` in common; below 0: of none.
  std::int32_t prefix_family = -1;
  std::int32_t shared_tokens = 0;                  ///< 0..prompt_tokens
  std::optional<std::int64_t> first_token_due_us;  ///< on the clock of arrivals
  std::optional<std::int64_t> deadline_us;         ///< of the last token; the scheduler is told it

  friend bool operator==(const SimulatedRequest&, const SimulatedRequest&) = default;
};

/// How a length varies around its mean.
enum class LengthSpread : std::uint8_t {
  fixed,
  uniform,    ///< 1 to twice the mean - 1
  lognormal,  ///< sigma 1: the median is 0.61 of the mean, one in a hundred is over 6 times it
};

/// What a random trace looks like.
struct TraceSpec {
  std::int32_t requests = 256;
  double requests_per_s = 0.0;  ///< a Poisson process; 0: all come at time 0
  LengthSpread spread = LengthSpread::lognormal;
  std::int32_t mean_prompt_tokens = 256;
  std::int32_t mean_max_tokens = 128;
  std::int32_t max_sequence_tokens = 2048;  ///< prompt and max_tokens together are cut to this
  double stopping_share = 0.0;     ///< of requests that stop at a random token before max_tokens
  double prefix_share = 0.0;       ///< of requests with a common prefix, before their own prompt
  std::int32_t prefix_tokens = 0;  ///< of such a prefix
  std::int32_t prefix_families = 1;
  std::uint64_t seed = 0;
};

/// The same trace for the same spec. Errors: invalid_argument for a number out of range, with its
/// name.
Result<std::vector<SimulatedRequest>> random_trace(const TraceSpec& spec);

/// When tokens are due, and for whom most.
struct TraceTargets {
  std::int64_t first_token_us = 1'000'000;  ///< after the arrival
  std::int64_t each_token_us = 50'000;      ///< and for each token of max_tokens until the end
  double urgent_share = 1.0;                ///< of requests, drawn by lot
  double patience = 1.0;                    ///< the others may take so many times as long
  std::uint64_t seed = 0;
};

/// Gives every request its two due times, urgent ones priority 0, the others 1. Errors:
/// invalid_argument for a number out of range, with its name.
Result<void> set_targets(const TraceTargets& targets, std::vector<SimulatedRequest>& trace);

}  // namespace troupe
