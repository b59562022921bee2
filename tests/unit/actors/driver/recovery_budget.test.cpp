#include "actors/driver/recovery_budget.hpp"

#include <gtest/gtest.h>

namespace troupe::test {
namespace {

using std::chrono::minutes;

TEST(RecoveryBudget, allows_so_many_recoveries_within_its_minutes) {
  RecoveryBudget budget({.max = 2, .per_minutes = 10});
  const RecoveryBudget::Clock::time_point begin{};
  EXPECT_TRUE(budget.take(begin));
  EXPECT_TRUE(budget.take(begin + minutes(5)));
  EXPECT_FALSE(budget.take(begin + minutes(9)));
  EXPECT_TRUE(budget.take(begin + minutes(10)));
  EXPECT_FALSE(budget.take(begin + minutes(14)));
  EXPECT_TRUE(budget.take(begin + minutes(15)));
}

TEST(RecoveryBudget, of_none_allows_none) { EXPECT_FALSE(RecoveryBudget({.max = 0}).take({})); }

}  // namespace
}  // namespace troupe::test
