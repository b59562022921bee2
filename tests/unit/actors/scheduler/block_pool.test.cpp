#include "actors/scheduler/block_pool.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using testing::ElementsAre;

TEST(BlockPool, hands_out_rising_blocks_first_and_then_the_last_freed) {
  BlockPool pool(5);
  std::vector<BlockId> table;
  ASSERT_TRUE(pool.allocate(3, table));
  EXPECT_THAT(table, ElementsAre(0, 1, 2));
  ASSERT_TRUE(pool.release(std::vector<BlockId>{1}).ok());
  ASSERT_TRUE(pool.allocate(2, table));
  EXPECT_THAT(table, ElementsAre(0, 1, 2, 1, 3));
}

TEST(BlockPool, gives_an_equal_table_the_same_order_again) {
  BlockPool pool(8);
  std::vector<BlockId> table;
  ASSERT_TRUE(pool.allocate(6, table));
  ASSERT_TRUE(pool.release(table).ok());
  std::vector<BlockId> again;
  ASSERT_TRUE(pool.allocate(6, again));
  EXPECT_EQ(again, table);
}

TEST(BlockPool, takes_nothing_when_too_few_are_free) {
  BlockPool pool(4);
  std::vector<BlockId> table;
  ASSERT_TRUE(pool.allocate(3, table));
  EXPECT_FALSE(pool.allocate(2, table));
  EXPECT_EQ(table.size(), 3U);
  EXPECT_EQ(pool.free_blocks(), 1);
  EXPECT_TRUE(pool.allocate(0, table));
}

TEST(BlockPool, frees_a_shared_block_with_its_last_reference) {
  BlockPool pool(2);
  std::vector<BlockId> table;
  ASSERT_TRUE(pool.allocate(1, table));
  ASSERT_TRUE(pool.share(0).ok());
  EXPECT_EQ(pool.references(0), 2);
  ASSERT_TRUE(pool.release(table).ok());
  EXPECT_EQ(pool.free_blocks(), 1);
  ASSERT_TRUE(pool.release(table).ok());
  EXPECT_EQ(pool.free_blocks(), 2);
}

TEST(BlockPool, refuses_a_double_release_and_foreign_blocks) {
  BlockPool pool(2);
  std::vector<BlockId> table;
  ASSERT_TRUE(pool.allocate(1, table));
  ASSERT_TRUE(pool.release(table).ok());
  for (const BlockId block : {0, 1, 2}) {
    const auto released = pool.release(std::vector<BlockId>{block});
    ASSERT_FALSE(released.ok()) << block;
    EXPECT_EQ(released.error().code, ErrorCode::internal);
    EXPECT_FALSE(pool.share(block).ok()) << block;
  }
  EXPECT_EQ(pool.free_blocks(), 2);
}

TEST(BlockPool, finds_what_was_published_until_the_block_is_needed) {
  BlockPool pool(3);
  std::vector<BlockId> table;
  ASSERT_TRUE(pool.allocate(2, table));
  const BlockContent first{1, 2, 0};
  const BlockContent second{1, 3, 0};
  pool.publish(table[0], first);
  pool.publish(table[1], second);
  EXPECT_EQ(pool.find(first), table[0]);
  EXPECT_EQ(pool.find({1, 2, 1}), std::nullopt) << "another group's";
  ASSERT_TRUE(pool.release(table).ok());
  EXPECT_EQ(pool.free_blocks(), 3);
  EXPECT_EQ(pool.find(first), table[0]) << "free, but still findable";

  std::vector<BlockId> other;
  ASSERT_TRUE(pool.allocate(1, other));
  EXPECT_EQ(other[0], 2) << "the one without content goes first";
  ASSERT_TRUE(pool.allocate(1, other));
  EXPECT_EQ(pool.find(second), std::nullopt) << "the end of the table was released first";
  ASSERT_TRUE(pool.share(table[0]).ok());
  EXPECT_EQ(pool.references(table[0]), 1);
  EXPECT_EQ(pool.free_blocks(), 0);
  EXPECT_FALSE(pool.allocate(1, other)) << "a shared block is not free";
}

TEST(BlockPool, keeps_the_first_of_two_blocks_with_equal_content) {
  BlockPool pool(2);
  std::vector<BlockId> table;
  ASSERT_TRUE(pool.allocate(2, table));
  pool.publish(table[0], {5, 5, 0});
  pool.publish(table[1], {5, 5, 0});
  EXPECT_EQ(pool.findable_blocks(), 1U);
  ASSERT_TRUE(pool.release(table).ok());
  EXPECT_EQ(pool.find({5, 5, 0}), table[0]);
}

}  // namespace
}  // namespace troupe
