#include "actors/executor/step_limit.hpp"

#include <algorithm>
#include <bit>

namespace troupe {
namespace {

/// In the smallest models a token takes about as long as attention over this many positions, in
/// larger ones as over many more.
constexpr std::uint64_t positions_per_token = 1024;

}  // namespace

std::uint64_t StepLimit::work_of(const StepPlan& plan) {
  std::uint64_t work = 1;
  for (const SequenceStep& step : plan.steps) {
    const auto tokens = static_cast<std::uint64_t>(std::max(0, step.tokens));
    const auto positions = static_cast<std::uint64_t>(std::max(0, step.first_position)) + tokens;
    work += tokens + tokens * positions / positions_per_token;
  }
  return work;
}

void StepLimit::note(std::uint64_t work, Duration time) {
  Duration& longest = longest_[static_cast<std::size_t>(std::bit_width(work | 1) - 1)];
  longest = std::max({longest, time, Duration(1)});
}

std::optional<StepLimit::Duration> StepLimit::limit(std::uint64_t work) const {
  std::optional<double> expected;
  for (std::size_t i = 0; i < longest_.size(); ++i) {
    if (longest_[i] == Duration{}) continue;
    const double times = static_cast<double>(work) / static_cast<double>(std::uint64_t{1} << i);
    const double from_this = static_cast<double>(longest_[i].count()) * std::max(1.0, times);
    expected = std::min(expected.value_or(from_this), from_this);
  }
  if (!expected) return std::nullopt;
  const double most = static_cast<double>(Duration(std::chrono::hours(24)).count());
  const double wanted = std::min(most, factor * *expected);
  return std::max(least_, Duration(static_cast<Duration::rep>(wanted)));
}

}  // namespace troupe
