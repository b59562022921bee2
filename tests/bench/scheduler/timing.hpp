#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace troupe::bench {

/// Microseconds of one call.
template <class Work>
double time_us(Work&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

/// The sample that a share of `quantile` of them does not exceed; sorts them.
inline double quantile(std::vector<double>& samples, double quantile) {
  std::sort(samples.begin(), samples.end());
  return samples[static_cast<std::size_t>(quantile * static_cast<double>(samples.size() - 1))];
}

}  // namespace troupe::bench
