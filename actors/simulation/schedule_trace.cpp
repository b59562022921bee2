#include "actors/simulation/schedule_trace.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>
#include <span>
#include <utility>

namespace troupe {
namespace {

/// The distributions of <random> differ between libraries; these do not.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}

  /// Uniform in [0, 1).
  double share() { return static_cast<double>(engine_() >> 11U) * 0x1p-53; }

  /// Uniform in [0, bound).
  std::int32_t below(std::int32_t bound) { return static_cast<std::int32_t>(share() * bound); }

  double exponential() { return -std::log1p(-share()); }

  /// Box-Muller transform, using one of the two values.
  double normal() {
    const double radius = std::sqrt(2.0 * exponential());
    return radius * std::cos(2.0 * std::numbers::pi * share());
  }

 private:
  std::mt19937_64 engine_;
};

/// Draws as many random numbers whatever the mean.
std::int32_t draw_length(Dice& dice, LengthSpread spread, std::int32_t mean, std::int32_t most) {
  double length = mean;
  switch (spread) {
    case LengthSpread::fixed:
      break;
    case LengthSpread::uniform:
      length = 1.0 + dice.below(2 * mean - 1);
      break;
    case LengthSpread::lognormal:
      length = std::round(mean * std::exp(dice.normal() - 0.5));
      break;
  }
  return static_cast<std::int32_t>(std::clamp(length, 1.0, static_cast<double>(most)));
}

Result<void> check_shares(std::span<const std::pair<const char*, double>> shares) {
  for (const auto& [name, share] : shares) {
    if (!(share >= 0.0 && share <= 1.0)) {
      return fail(ErrorCode::invalid_argument, "{} is {}, it must be from 0 to 1", name, share);
    }
  }
  return {};
}

Result<void> check(const TraceSpec& spec) {
  constexpr std::int32_t many = 1 << 24;
  struct Bound {
    const char* name;
    std::int32_t value, least;
  };
  for (const auto& [name, value, least] : {Bound{"requests", spec.requests, 1},
                                           {"mean_prompt_tokens", spec.mean_prompt_tokens, 1},
                                           {"mean_max_tokens", spec.mean_max_tokens, 1},
                                           {"max_sequence_tokens", spec.max_sequence_tokens, 2},
                                           {"prefix_tokens", spec.prefix_tokens, 0},
                                           {"prefix_families", spec.prefix_families, 1}}) {
    if (value < least || value > many) {
      return fail(ErrorCode::invalid_argument, "{} is {}, it must be from {} to {}", name, value,
                  least, many);
    }
  }
  if (spec.prefix_tokens > spec.max_sequence_tokens - 2) {
    return fail(ErrorCode::invalid_argument,
                "prefix_tokens is {}, which leaves no room for a prompt and an answer in {}",
                spec.prefix_tokens, spec.max_sequence_tokens);
  }
  if (!(spec.requests_per_s >= 0.0) || !std::isfinite(spec.requests_per_s)) {
    return fail(ErrorCode::invalid_argument, "requests_per_s is {}, it must not be negative",
                spec.requests_per_s);
  }
  const std::pair<const char*, double> shares[] = {{"stopping_share", spec.stopping_share},
                                                   {"prefix_share", spec.prefix_share}};
  return check_shares(shares);
}

}  // namespace

Result<std::vector<SimulatedRequest>> random_trace(const TraceSpec& spec) {
  TROUPE_CHECK(check(spec));
  Dice arrivals(spec.seed);
  Dice lengths(spec.seed + 1);
  Dice kinds(spec.seed + 2);  // a separate generator, so that changing a share leaves the rest as
                              // it was
  double arrival_us = 0.0;
  std::vector<SimulatedRequest> trace(static_cast<std::size_t>(spec.requests));
  for (SimulatedRequest& request : trace) {
    if (spec.requests_per_s > 0.0) arrival_us += arrivals.exponential() / spec.requests_per_s * 1e6;
    request.arrival_us = std::llround(arrival_us);
    const bool stops = kinds.share() < spec.stopping_share;
    const double stops_at = kinds.share();
    const bool shares = kinds.share() < spec.prefix_share;
    const std::int32_t family = kinds.below(spec.prefix_families);
    if (shares && spec.prefix_tokens > 0) {
      request.prefix_family = family;
      request.shared_tokens = spec.prefix_tokens;
    }
    const std::int32_t room = spec.max_sequence_tokens - request.shared_tokens;
    request.prompt_tokens = request.shared_tokens +
                            draw_length(lengths, spec.spread, spec.mean_prompt_tokens, room - 1);
    request.max_tokens = draw_length(lengths, spec.spread, spec.mean_max_tokens,
                                     spec.max_sequence_tokens - request.prompt_tokens);
    request.output_tokens = request.max_tokens;
    if (stops) request.output_tokens = 1 + static_cast<std::int32_t>(stops_at * request.max_tokens);
  }
  return trace;
}

Result<void> set_targets(const TraceTargets& targets, std::vector<SimulatedRequest>& trace) {
  const std::pair<const char*, double> shares[] = {{"urgent_share", targets.urgent_share}};
  TROUPE_CHECK(check_shares(shares));
  if (targets.first_token_us < 0 || targets.each_token_us < 0) {
    return fail(ErrorCode::invalid_argument,
                "tokens are due {} us after the arrival and {} us each: neither may be negative",
                targets.first_token_us, targets.each_token_us);
  }
  if (!(targets.patience >= 1.0) || !std::isfinite(targets.patience)) {
    return fail(ErrorCode::invalid_argument, "patience is {}, it must be at least 1",
                targets.patience);
  }
  Dice dice(targets.seed);
  for (SimulatedRequest& request : trace) {
    const bool urgent = dice.share() < targets.urgent_share;
    const double times = urgent ? 1.0 : targets.patience;
    const auto first_us = static_cast<double>(targets.first_token_us);
    const double rest_us = static_cast<double>(targets.each_token_us) * request.max_tokens;
    request.priority = urgent ? 0 : 1;
    request.first_token_due_us = request.arrival_us + std::llround(times * first_us);
    request.deadline_us = request.arrival_us + std::llround(times * (first_us + rest_us));
  }
  return {};
}

}  // namespace troupe
