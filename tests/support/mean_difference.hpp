#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

namespace troupe::tests {

/// The mean of |a[i] - b[i]|; expects as many numbers of both.
inline double mean_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  if (a.size() != b.size()) return HUGE_VAL;
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::abs(double{a[i]} - b[i]);
  return sum / static_cast<double>(a.size());
}

}  // namespace troupe::tests
