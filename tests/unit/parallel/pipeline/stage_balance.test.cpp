#include "parallel/pipeline/stage_balance.hpp"

#include <algorithm>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

namespace troupe {
namespace {

using Costs = std::vector<std::int64_t>;
using Counts = std::vector<std::int64_t>;

Counts layers_of(const Costs& costs, int stages) {
  Counts counts;
  for (const Slice& stage : balance_stages(costs, stages)) counts.push_back(stage.count);
  return counts;
}

std::int64_t cost_of(const Costs& costs, const Slice& stage) {
  return std::accumulate(costs.begin() + stage.begin, costs.begin() + stage.end(), std::int64_t{0});
}

/// The minimum, over all cuts of costs[first..], of the costliest of `stages` stages.
std::int64_t min_of_all_cuts(const Costs& costs, std::size_t first, int stages) {
  const auto begin = static_cast<std::int64_t>(first);
  const auto layers = static_cast<std::int64_t>(costs.size());
  if (stages == 1) return cost_of(costs, {begin, layers - begin});
  std::int64_t least = INT64_MAX;
  for (std::int64_t count = 1; begin + count <= layers - (stages - 1); ++count) {
    const std::int64_t rest =
        min_of_all_cuts(costs, static_cast<std::size_t>(begin + count), stages - 1);
    least = std::min(least, std::max(cost_of(costs, {begin, count}), rest));
  }
  return least;
}

TEST(StageBalance, cuts_equal_layers_evenly) {
  EXPECT_EQ(layers_of(Costs(8, 5), 4), (Counts{2, 2, 2, 2}));
  EXPECT_EQ(layers_of(Costs(8, 5), 1), (Counts{8}));
  EXPECT_EQ(layers_of(Costs(8, 5), 8), Counts(8, 1));
}

TEST(StageBalance, leaves_the_last_stage_the_least_where_layers_do_not_divide) {
  EXPECT_EQ(layers_of(Costs(5, 1), 2), (Counts{3, 2}));
  EXPECT_EQ(layers_of(Costs(5, 1), 4), (Counts{2, 1, 1, 1}));
}

TEST(StageBalance, gives_the_stage_of_a_costly_head_fewer_layers) {
  EXPECT_EQ(layers_of({10, 10, 10, 10, 10, 10 + 15}, 2), (Counts{4, 2}));
  EXPECT_EQ(layers_of({10 + 15, 10, 10, 10, 10, 10}, 2), (Counts{2, 4}));
}

TEST(StageBalance, gives_every_stage_a_layer_however_costly_one_is_and_where_layers_are_free) {
  EXPECT_EQ(layers_of({1, 1, 1, 1000}, 4), (Counts{1, 1, 1, 1}));
  EXPECT_EQ(layers_of({1000, 1, 1, 1}, 3), (Counts{1, 2, 1}));
  EXPECT_EQ(layers_of({0, 0, 0}, 2), (Counts{2, 1}));
}

TEST(StageBalance, takes_costs_near_the_limit_of_their_sum) {
  EXPECT_EQ(layers_of(Costs(4, INT64_MAX / 4), 2), (Counts{2, 2}));
}

TEST(StageBalance, finds_what_trying_every_cut_finds) {
  std::mt19937 random(20);
  for (int round = 0; round < 2000; ++round) {
    Costs costs(1 + random() % 9);
    for (auto& cost : costs) cost = static_cast<std::int64_t>(random() % 20);
    const int stages = 1 + static_cast<int>(random() % costs.size());
    SCOPED_TRACE(testing::PrintToString(costs) + " in " + std::to_string(stages) + " stages");
    const std::vector<Slice> found = balance_stages(costs, stages);
    ASSERT_EQ(found.size(), static_cast<std::size_t>(stages));
    std::int64_t next = 0;
    std::int64_t largest = 0;
    for (const Slice& stage : found) {
      ASSERT_EQ(stage.begin, next);
      ASSERT_GE(stage.count, 1);
      next = stage.end();
      largest = std::max(largest, cost_of(costs, stage));
    }
    ASSERT_EQ(next, static_cast<std::int64_t>(costs.size()));
    ASSERT_EQ(largest, min_of_all_cuts(costs, 0, stages));
  }
}

}  // namespace
}  // namespace troupe
