#include "actors/telemetry/distribution.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

TEST(Distribution, percentiles_lie_between_neighbours) {
  std::vector<double> values;
  for (int i = 100; i >= 0; --i) values.push_back(i);
  const Distribution of = distribution_of(values);
  EXPECT_DOUBLE_EQ(of.mean, 50);
  EXPECT_DOUBLE_EQ(of.p50, 50);
  EXPECT_DOUBLE_EQ(of.p95, 95);
  EXPECT_DOUBLE_EQ(of.p99, 99);
  EXPECT_DOUBLE_EQ(distribution_of({1, 2}).p50, 1.5);
  EXPECT_DOUBLE_EQ(distribution_of({3}).p99, 3);
  EXPECT_DOUBLE_EQ(distribution_of({}).mean, 0);
}

}  // namespace
}  // namespace troupe
