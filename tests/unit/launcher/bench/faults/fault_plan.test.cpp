#include "launcher/bench/faults/fault_plan.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include <gtest/gtest.h>

namespace troupe {
namespace {

constexpr FaultKind three[] = {FaultKind::worker, FaultKind::executor, FaultKind::node};

bool same(const PlannedFault& a, const PlannedFault& b) {
  return a.kind == b.kind && a.wait_seconds == b.wait_seconds && a.draw == b.draw;
}

TEST(FaultPlan, is_a_function_of_its_seed) {
  const auto once = plan_faults(three, 40, 2, 7);
  const auto again = plan_faults(three, 40, 2, 7);
  const auto other = plan_faults(three, 40, 2, 8);
  EXPECT_TRUE(std::ranges::equal(once, again, same));
  EXPECT_FALSE(std::ranges::equal(once, other, same));
}

TEST(FaultPlan, of_fewer_faults_is_the_beginning_of_one_of_more) {
  const auto few = plan_faults(three, 5, 2, 3);
  const auto many = plan_faults(three, 50, 2, 3);
  ASSERT_EQ(few.size(), 5U);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin(), same));
}

TEST(FaultPlan, has_each_kind_as_often_as_the_others_in_any_part_of_it) {
  const auto faults = plan_faults(three, 31, 2, 1);
  ASSERT_EQ(faults.size(), 31U);
  std::map<FaultKind, int> counts;
  for (std::size_t i = 0; i < faults.size(); ++i) {
    ++counts[faults[i].kind];
    if (i < 3) continue;
    const auto [least, most] =
        std::ranges::minmax_element(counts, {}, [](const auto& count) { return count.second; });
    EXPECT_LE(most->second - least->second, 1) << "after fault " << i;
  }
}

TEST(FaultPlan, waits_for_random_times_of_the_mean_that_is_asked_for) {
  const auto faults = plan_faults(three, 4000, 3, 1);
  double sum = 0, longest = 0;
  for (const PlannedFault& fault : faults) {
    EXPECT_GE(fault.wait_seconds, 0);
    sum += fault.wait_seconds;
    longest = std::max(longest, fault.wait_seconds);
  }
  // The cut at 4 means takes a fiftieth of the mean.
  EXPECT_NEAR(sum / 4000, 3 * 0.98, 0.2);
  EXPECT_EQ(longest, 12);
}

}  // namespace
}  // namespace troupe
