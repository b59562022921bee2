#include "runtime/control/followers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Followers, of_an_actor_are_told_once_and_others_not_at_all) {
  Followers<int> followers;
  EXPECT_TRUE(followers.add(7, 1));
  EXPECT_FALSE(followers.add(7, 2)) << "it has one already";
  EXPECT_FALSE(followers.add(7, 1));
  EXPECT_TRUE(followers.add(8, 3));
  EXPECT_THAT(followers.take(7), ElementsAre(1, 2));
  EXPECT_THAT(followers.take(7), IsEmpty());
  EXPECT_THAT(followers.take(8), ElementsAre(3));
}

TEST(Followers, that_have_ended_are_forgotten) {
  Followers<int> followers;
  followers.add(7, 1);
  followers.add(7, 2);
  followers.add(8, 1);
  followers.remove(1);
  EXPECT_EQ(followers.size(), 1U) << "nothing is kept of an actor without followers";
  EXPECT_TRUE(followers.add(8, 2)) << "it has none any more";
  EXPECT_THAT(followers.take(7), ElementsAre(2));
  followers.remove(2);
  EXPECT_EQ(followers.size(), 0U);
}

}  // namespace
}  // namespace troupe
