#pragma once

#include <vector>

namespace troupe {

/// A summary of many measurements of one quantity.
struct Distribution {
  double mean = 0;
  double p50 = 0;
  double p95 = 0;
  double p99 = 0;
};

/// Percentiles are interpolated between neighbours. All 0 without values.
Distribution distribution_of(std::vector<double> values);

}  // namespace troupe
