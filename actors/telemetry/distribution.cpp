#include "actors/telemetry/distribution.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
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

}  // namespace troupe
