#include "launcher/report/step_series.hpp"

#include <random>

#include <gtest/gtest.h>

namespace troupe {
namespace {

StepRecord step(std::int64_t planned_us, std::int64_t answered_us) {
  StepRecord record;
  record.planned_us = planned_us;
  record.answered_us = answered_us;
  record.prompt_tokens = 7;
  record.prefix_tokens = 3;
  record.output_tokens = 5;
  record.running = 4;
  record.waiting = 2;
  record.kv_use = record.max_kv_use = 0.5;
  return record;
}

TEST(StepSeries, has_no_points_without_steps) {
  EXPECT_TRUE(StepSeries().points(100).empty());
  EXPECT_EQ(StepSeries().peak_kv_use(), 0);
}

TEST(StepSeries, spreads_a_long_step_over_its_time) {
  StepSeries series;
  series.begin_at(1'000'000);
  StepRecord record = step(1'000'000, 1'100'000);
  record.output_tokens = 100;
  series.add(0, record);
  const auto points = series.points(2000);
  ASSERT_EQ(points.size(), 10U);
  for (const auto& point : points) {
    EXPECT_EQ(point.output_tokens, 10U) << "at " << point.seconds;
    EXPECT_DOUBLE_EQ(point.running, 4) << "at " << point.seconds;
    EXPECT_DOUBLE_EQ(point.kv_use, 0.5) << "at " << point.seconds;
    EXPECT_NEAR(point.width, 0.01, 1e-9);
  }
}

TEST(StepSeries, does_not_count_steps_in_flight_together_twice) {
  StepSeries series;
  // Planned before the previous one was answered.
  series.add(0, step(0, 20'000));
  series.add(0, step(5'000, 40'000));
  const auto points = series.points(2000);
  ASSERT_EQ(points.size(), 4U);
  EXPECT_EQ(points[0].output_tokens + points[1].output_tokens, 5U);
  EXPECT_EQ(points[2].output_tokens + points[3].output_tokens, 5U);
}

TEST(StepSeries, counts_results_of_one_microsecond_and_late_ones) {
  StepSeries series;
  series.add(0, step(0, 20'000));
  series.add(0, step(10'000, 20'000));
  series.add(0, step(5'000, 15'000));  // reported after a later one
  const auto points = series.points(2000);
  ASSERT_EQ(points.size(), 2U);
  EXPECT_EQ(points[0].output_tokens + points[1].output_tokens, 15U);
  EXPECT_EQ(points[1].running, 4);
}

TEST(StepSeries, is_zero_where_there_are_no_steps) {
  StepSeries series;
  series.add(0, step(0, 10'000));
  series.add(0, step(30'000, 40'000));
  const auto points = series.points(2000);
  ASSERT_EQ(points.size(), 4U);
  EXPECT_EQ(points[1].running, 0);
  EXPECT_EQ(points[2].running, 0);
  EXPECT_EQ(points[3].running, 4);
}

TEST(StepSeries, adds_domains_up_and_takes_the_mean_of_their_kv_use) {
  StepSeries series;
  series.add(0, step(0, 10'000));
  StepRecord other = step(0, 10'000);
  other.kv_use = other.max_kv_use = 0.1;
  other.running = 10;
  series.add(1, other);
  const auto points = series.points(2000);
  ASSERT_EQ(points.size(), 1U);
  EXPECT_EQ(points[0].steps, 2U);
  EXPECT_DOUBLE_EQ(points[0].running, 14);
  EXPECT_DOUBLE_EQ(points[0].kv_use, 0.3);
  EXPECT_DOUBLE_EQ(points[0].max_kv_use, 0.5);
  EXPECT_DOUBLE_EQ(series.peak_kv_use(), 0.5);
}

TEST(StepSeries, stays_bounded_and_keeps_every_token_of_a_long_job) {
  const unsigned seed = 5;
  std::mt19937 random(seed);
  StepSeries series;
  series.begin_at(77);
  std::int64_t now = 77;
  constexpr std::uint64_t steps = 50'000;
  for (std::uint64_t i = 0; i < steps; ++i) {
    const std::int64_t begin = now;
    now += std::uniform_int_distribution<std::int64_t>(1, 3'000'000)(random);
    series.add(i % 2, step(begin, now));
  }
  for (const std::size_t most : {StepSeries::max_buckets, std::size_t{150}, std::size_t{1}}) {
    const auto points = series.points(most);
    ASSERT_FALSE(points.empty());
    EXPECT_LE(points.size(), most);
    std::uint64_t count = 0, prompt = 0, output = 0;
    for (const auto& point : points) {
      count += point.steps;
      prompt += point.prompt_tokens;
      output += point.output_tokens;
    }
    EXPECT_EQ(count, steps) << "seed " << seed;
    EXPECT_EQ(prompt, 7 * steps) << "seed " << seed;
    EXPECT_EQ(output, 5 * steps) << "seed " << seed;
    const double end = points.back().seconds + points.back().width;
    EXPECT_GE(end, static_cast<double>(now - 77) * 1e-6);
  }
  EXPECT_GT(series.points(StepSeries::max_buckets).size(), StepSeries::max_buckets / 4);
}

TEST(StepSeries, takes_steps_from_before_its_beginning_as_at_zero) {
  StepSeries series;
  series.begin_at(1'000'000);
  series.add(0, step(0, 500'000));
  series.add(0, step(400'000, 1'000'000));
  const auto points = series.points(10);
  ASSERT_EQ(points.size(), 1U);
  EXPECT_EQ(points[0].output_tokens, 10U);
}

}  // namespace
}  // namespace troupe
