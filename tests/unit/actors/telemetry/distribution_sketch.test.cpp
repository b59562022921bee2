#include "actors/telemetry/distribution_sketch.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace troupe {
namespace {

std::vector<std::uint64_t> log_normal(std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::lognormal_distribution<double> values(9, 1.5);
  std::vector<std::uint64_t> result;
  for (std::size_t i = 0; i < count; ++i)
    result.push_back(static_cast<std::uint64_t>(values(random)));
  return result;
}

TEST(DistributionSketch, is_exact_for_few_values) {
  DistributionSketch sketch;
  for (const std::uint64_t us : {30, 10, 20, 50, 40}) sketch.add(us);
  EXPECT_TRUE(sketch.exact());
  EXPECT_EQ(sketch.count(), 5U);
  EXPECT_DOUBLE_EQ(sketch.mean_us(), 30);
  EXPECT_DOUBLE_EQ(sketch.quantile_us(0), 10);
  EXPECT_DOUBLE_EQ(sketch.quantile_us(0.5), 30);
  EXPECT_DOUBLE_EQ(sketch.quantile_us(0.625), 35);
  EXPECT_DOUBLE_EQ(sketch.quantile_us(1), 50);
}

TEST(DistributionSketch, says_nothing_without_values) {
  const DistributionSketch sketch;
  EXPECT_EQ(sketch.count(), 0U);
  EXPECT_EQ(sketch.quantile_us(0.5), 0);
  EXPECT_EQ(sketch.mean_us(), 0);
  EXPECT_TRUE(sketch.bins(10).empty());
}

TEST(DistributionSketch, is_right_to_3_percent_beyond_the_exact_limit) {
  auto values = log_normal(3 * DistributionSketch::exact_limit, 7);
  DistributionSketch sketch;
  for (const std::uint64_t us : values) sketch.add(us);
  ASSERT_FALSE(sketch.exact());
  std::ranges::sort(values);
  for (const double q : {0.01, 0.5, 0.95, 0.99, 0.9999}) {
    const double expected = static_cast<double>(
        values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))]);
    EXPECT_NEAR(sketch.quantile_us(q), expected, 0.033 * expected + 1) << "quantile " << q;
  }
  EXPECT_EQ(sketch.min_us(), values.front());
  EXPECT_EQ(sketch.max_us(), values.back());
}

TEST(DistributionSketch, of_two_parts_is_that_of_the_whole) {
  const auto values = log_normal(1000, 3);
  DistributionSketch whole, left, right;
  for (std::size_t i = 0; i < values.size(); ++i) {
    whole.add(values[i]);
    (i % 3 == 0 ? left : right).add(values[i]);
  }
  left.add(right);
  EXPECT_EQ(left.count(), whole.count());
  EXPECT_DOUBLE_EQ(left.mean_us(), whole.mean_us());
  for (const double q : {0.0, 0.5, 0.95, 1.0}) {
    EXPECT_DOUBLE_EQ(left.quantile_us(q), whole.quantile_us(q)) << "quantile " << q;
  }
}

TEST(DistributionSketch, stays_bounded_with_repeats_and_huge_values) {
  DistributionSketch sketch;
  sketch.add(5, 1'000'000'000);
  sketch.add(std::uint64_t{1} << 60);
  EXPECT_FALSE(sketch.exact());
  EXPECT_EQ(sketch.count(), 1'000'000'001U);
  EXPECT_NEAR(sketch.quantile_us(0.5), 5, 1);
  EXPECT_EQ(sketch.max_us(), std::uint64_t{1} << 60);
}

TEST(DistributionSketch, puts_every_value_in_one_bin) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{17}, std::size_t{100'000}}) {
    DistributionSketch sketch;
    for (const std::uint64_t us : log_normal(count, 11)) sketch.add(us);
    const auto bins = sketch.bins(40);
    ASSERT_FALSE(bins.empty());
    ASSERT_LE(bins.size(), 40U);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < bins.size(); ++i) {
      sum += bins[i].count;
      EXPECT_LT(bins[i].from_us, bins[i].to_us);
      if (i == 0) continue;
      EXPECT_NEAR(bins[i].from_us, bins[i - 1].to_us, 1e-6 * bins[i].from_us);
    }
    EXPECT_EQ(sum, count);
  }
}

}  // namespace
}  // namespace troupe
