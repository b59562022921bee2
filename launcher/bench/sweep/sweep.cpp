#include "launcher/bench/sweep/sweep.hpp"

#include <algorithm>
#include <cmath>
#include <random>

namespace troupe {
namespace {

double milliseconds(double from, double to) { return (to - from) * 1e3; }

struct Times {
  std::vector<double> first_token_ms, per_token_ms, whole_ms;
};

/// Adds the times of an answer; returns true if they are within the limits. Answers of several
/// choices have no inter-token time.
bool take(const Outcome& outcome, const SweepOptions& limits, Times& times) {
  const double first = milliseconds(outcome.submitted, outcome.first_token);
  const double whole = milliseconds(outcome.submitted, outcome.finished);
  times.first_token_ms.push_back(first);
  times.whole_ms.push_back(whole);
  double each = 0;
  if (outcome.choices == 1 && outcome.output_tokens >= 2) {
    each = milliseconds(outcome.first_token, outcome.finished) /
           static_cast<double>(outcome.output_tokens - 1);
    times.per_token_ms.push_back(each);
  }
  return first <= limits.ttft_ms.value_or(first) && each <= limits.tpot_ms.value_or(each) &&
         whole <= limits.e2e_ms.value_or(whole);
}

double ratio(double amount, double of) { return of > 0 ? amount / of : 0; }

}  // namespace

std::vector<double> poisson_arrivals(std::size_t count, double rate, std::uint64_t seed) {
  std::vector<double> arrivals(count, 0.0);
  if (std::isinf(rate)) return arrivals;
  std::mt19937_64 random(seed);
  double now = 0;
  for (std::size_t i = 1; i < count; ++i) {
    // In (0, 1]: 53 bits, so that the logarithm is finite. The same with every standard library.
    const double uniform = (static_cast<double>(random() >> 11U) + 1) / 9007199254740992.0;
    now -= std::log(uniform) / rate;
    arrivals[i] = now;
  }
  return arrivals;
}

SweepPoint sweep_point(double load, std::span<const SweepRun> runs, const SweepOptions& limits,
                       const ModelWork& work, const Ceilings& ceilings) {
  SweepPoint point;
  point.load = load;
  point.runs = static_cast<std::int64_t>(runs.size());
  Times times;
  double output_tokens = 0, all_tokens = 0, good = 0, judged = 0, operations = 0, bytes = 0;
  for (const SweepRun& run : runs) {
    double generated = 0;
    for (const Outcome& outcome : run.outcomes) {
      if (!outcome.error.empty()) {
        ++point.failed;
        ++judged;
        continue;
      }
      ++point.answered;
      const bool kept = take(outcome, limits, times);
      if (!limits.tpot_ms || outcome.choices == 1) {
        good += kept ? 1 : 0;
        ++judged;
      }
      generated += static_cast<double>(outcome.output_tokens);
      all_tokens += static_cast<double>(outcome.prompt_tokens + outcome.output_tokens);
    }
    const double speed = ratio(generated, run.seconds);
    const bool first = &run == runs.data();
    point.min_output_tokens_per_second =
        first ? speed : std::min(point.min_output_tokens_per_second, speed);
    point.max_output_tokens_per_second = std::max(point.max_output_tokens_per_second, speed);
    output_tokens += generated;
    point.seconds += run.seconds;
    operations += work.operations(run.outcomes, run.computed_prompt_tokens);
    bytes += work.bytes(run.outcomes, run.steps);
  }
  point.requests_per_second = ratio(static_cast<double>(point.answered), point.seconds);
  point.output_tokens_per_second = ratio(output_tokens, point.seconds);
  point.all_tokens_per_second = ratio(all_tokens, point.seconds);
  point.good_requests_per_second = ratio(good, point.seconds);
  point.good_share = ratio(good, judged);
  point.first_token_ms = distribution_of(std::move(times.first_token_ms));
  point.per_token_ms = distribution_of(std::move(times.per_token_ms));
  point.whole_ms = distribution_of(std::move(times.whole_ms));
  point.operations_share = ratio(ratio(operations, point.seconds), ceilings.operations_per_second);
  point.bytes_share = ratio(ratio(bytes, point.seconds), ceilings.bytes_per_second);
  return point;
}

}  // namespace troupe
