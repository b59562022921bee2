#include "launcher/bench/figures.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace troupe {
namespace {

/// `values` ascending, not empty.
double percentile(const std::vector<double>& values, double share) {
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(place));
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (values[above] - values[below]) * (place - std::floor(place));
}

}  // namespace

Distribution distribution_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {sum / static_cast<double>(values.size()), percentile(values, 0.5),
          percentile(values, 0.95), percentile(values, 0.99)};
}

ThroughputFigures throughput_of(std::span<const Outcome> outcomes) {
  ThroughputFigures figures;
  for (const Outcome& outcome : outcomes) {
    figures.seconds = std::max(figures.seconds, outcome.finished);
    if (!outcome.error.empty()) {
      ++figures.failed;
      continue;
    }
    ++figures.requests;
    figures.input_tokens += outcome.prompt_tokens;
    figures.output_tokens += outcome.output_tokens;
  }
  return figures;
}

LatencyFigures latency_of(std::span<const Outcome> outcomes) {
  LatencyFigures figures;
  std::vector<double> first, per_token, whole;
  for (const Outcome& outcome : outcomes) {
    if (!outcome.error.empty()) {
      ++figures.failed;
      continue;
    }
    ++figures.requests;
    first.push_back((outcome.first_token - outcome.submitted) * 1e3);
    whole.push_back((outcome.finished - outcome.submitted) * 1e3);
    if (outcome.output_tokens < 2) continue;
    per_token.push_back((outcome.finished - outcome.first_token) * 1e3 /
                        static_cast<double>(outcome.output_tokens - 1));
  }
  figures.first_token_ms = distribution_of(std::move(first));
  figures.per_token_ms = distribution_of(std::move(per_token));
  figures.whole_ms = distribution_of(std::move(whole));
  return figures;
}

}  // namespace troupe
