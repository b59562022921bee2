#include "actors/scheduler/swap_space.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

TEST(SwapSpace, gives_the_lowest_free_blocks_first) {
  SwapSpace space(10);
  ASSERT_TRUE(space.put(7, 3));
  ASSERT_TRUE(space.put(8, 2));
  EXPECT_EQ(space.free_blocks(), 5);
  space.drop(7);
  ASSERT_TRUE(space.put(9, 4));
  ASSERT_THAT(space.going_out(), SizeIs(2));
  EXPECT_THAT(space.going_out()[0].host_blocks, ElementsAre(3, 4));
  EXPECT_THAT(space.going_out()[1].host_blocks, ElementsAre(0, 1, 2, 5));
}

TEST(SwapSpace, takes_nothing_if_too_few_blocks_are_free) {
  SwapSpace space(4);
  ASSERT_TRUE(space.put(1, 3));
  EXPECT_FALSE(space.put(2, 2));
  EXPECT_EQ(space.free_blocks(), 1);
  EXPECT_THAT(space.going_out(), SizeIs(1));
  EXPECT_TRUE(space.put(3, 0)) << "who holds nothing needs none";
  EXPECT_FALSE(SwapSpace(0).put(1, 1));
}

TEST(SwapSpace, has_inside_what_was_told) {
  SwapSpace space(4);
  EXPECT_TRUE(space.is_empty());
  ASSERT_TRUE(space.put(1, 3));
  EXPECT_FALSE(space.is_empty());
  EXPECT_THAT(space.inside(), IsEmpty());
  const auto told = space.tell();
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].id, 1U);
  EXPECT_THAT(told[0].host_blocks, ElementsAre(0, 1, 2));
  EXPECT_THAT(space.going_out(), IsEmpty());
  EXPECT_THAT(space.inside(), SizeIs(1));
  EXPECT_THAT(space.tell(), IsEmpty());
}

TEST(SwapSpace, hands_blocks_of_who_comes_back_out_only_after_the_next_plan) {
  SwapSpace space(4);
  ASSERT_TRUE(space.put(1, 3));
  space.tell();
  EXPECT_THAT(space.take(1), ElementsAre(0, 1, 2));
  EXPECT_THAT(space.inside(), IsEmpty());
  EXPECT_EQ(space.free_blocks(), 1);
  EXPECT_FALSE(space.put(2, 2));
  space.tell();
  EXPECT_EQ(space.free_blocks(), 4);
  EXPECT_TRUE(space.put(2, 2));
}

TEST(SwapSpace, forgets_the_ended_wherever_they_are) {
  SwapSpace space(4);
  ASSERT_TRUE(space.put(1, 1));
  space.tell();
  ASSERT_TRUE(space.put(2, 1));
  space.drop(1);
  space.drop(2);
  space.drop(3);
  EXPECT_TRUE(space.is_empty());
  EXPECT_EQ(space.free_blocks(), 4);
  EXPECT_THAT(space.tell(), IsEmpty()) << "workers hear nothing of what ended before it was told";
}

}  // namespace
}  // namespace troupe
