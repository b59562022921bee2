#include "runtime/node/cpu_pool.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using ::testing::ElementsAre;

TEST(CpuPool, gives_each_holder_cpus_of_its_own_those_nearby_first) {
  CpuPool pool(std::vector{0, 1, 2, 3, 8, 9});
  EXPECT_THAT(pool.take(1, 2, {}), ElementsAre(0, 1));
  EXPECT_THAT(pool.take(2, 2, std::vector{1, 3, 9}), ElementsAre(3, 9));
  EXPECT_THAT(pool.take(3, 2, std::vector{3, 9}), ElementsAre(2, 8)) << "near ones are taken";
  pool.give_back(2);
  EXPECT_THAT(pool.take(4, 2, std::vector{9}), ElementsAre(3, 9));
}

TEST(CpuPool, shares_the_cpus_that_the_fewest_hold_if_there_are_too_few) {
  CpuPool pool(std::vector{4, 5});
  EXPECT_THAT(pool.take(1, 1, {}), ElementsAre(4));
  EXPECT_THAT(pool.take(2, 2, {}), ElementsAre(4, 5));
  EXPECT_THAT(pool.take(3, 1, {}), ElementsAre(5)) << "4 is held twice";
  EXPECT_THAT(pool.take(4, 9, {}), ElementsAre(4, 5)) << "there are no more";
  pool.give_back(1);
  pool.give_back(1);
  pool.give_back(77);
}

}  // namespace
}  // namespace troupe
