#include "models/ops/shared_prefixes.hpp"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Sequences of one row at the end of their tables.
class SharedPrefixes : public testing::Test {
 protected:
  static constexpr std::int32_t block_size = 16;

  /// `tokens_of_last`: of the last block, the row's own token included.
  void add(const std::vector<std::int32_t>& blocks, std::int32_t tokens_of_last = block_size) {
    const auto all = static_cast<std::int32_t>(blocks.size());
    spans_.push_back({.first_row = static_cast<std::int32_t>(spans_.size()),
                      .rows = 1,
                      .first_position = (all - 1) * block_size + tokens_of_last - 1,
                      .block_offset = static_cast<std::int32_t>(table_.size())});
    table_.insert(table_.end(), blocks.begin(), blocks.end());
  }
  AttentionBatch batch() const {
    AttentionBatch batch;
    batch.sequences = spans_;
    batch.block_size = block_size;
    batch.host_block_tables = table_;
    return batch;
  }
  std::vector<SharedPrefix> found(std::int64_t window = 0) const {
    return find_shared_prefixes(batch(), window);
  }

  std::vector<SequenceSpan> spans_;
  std::vector<std::int32_t> table_;
};

TEST_F(SharedPrefixes, are_the_blocks_that_tables_begin_with_alike) {
  add({5, 6, 7, 1});
  add({9, 2});
  add({5, 6, 7, 3, 4});
  add({5, 6, 7, 8});
  EXPECT_THAT(found(), ElementsAre(SharedPrefix{{0, 2, 3}, 3}));
}

TEST_F(SharedPrefixes, may_be_several) {
  add({1, 2, 10});
  add({3, 4, 11});
  add({1, 2, 12});
  add({3, 4, 13});
  EXPECT_THAT(found(), ElementsAre(SharedPrefix{{0, 2}, 2}, SharedPrefix{{1, 3}, 2}));
}

TEST_F(SharedPrefixes, are_the_longer_ones_where_these_save_more) {
  // All begin with block 0, pairs with four more.
  for (std::int32_t pair = 0; pair < 3; ++pair) {
    for (std::int32_t i = 0; i < 2; ++i) {
      const std::int32_t own = 10 * (pair + 1);
      add({0, own, own + 1, own + 2, own + 3, 100 + 2 * pair + i});
    }
  }
  EXPECT_THAT(found(), ElementsAre(SharedPrefix{{0, 1}, 5}, SharedPrefix{{2, 3}, 5},
                                   SharedPrefix{{4, 5}, 5}));
}

TEST_F(SharedPrefixes, are_the_common_one_where_this_saves_more) {
  for (std::int32_t row = 0; row < 6; ++row) add({0, 1, 2, 3, 10 + row / 2, 100 + row});
  EXPECT_THAT(found(), ElementsAre(SharedPrefix{{0, 1, 2, 3, 4, 5}, 4}));
}

TEST_F(SharedPrefixes, end_before_the_block_of_each_row) {
  // The second row's own block is the third one's second, which it has filled.
  add({1, 2, 3});
  add({1, 2}, 3);
  EXPECT_THAT(found(), ElementsAre(SharedPrefix{{0, 1}, 1}));
}

TEST_F(SharedPrefixes, are_none_that_differ_only_in_their_first_block) {
  add({1, 5, 6, 7, 8});
  add({2, 5, 6, 7, 9});
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(SharedPrefixes, are_none_behind_a_window) {
  add({1, 2, 3});
  add({1, 2, 4}, 1);
  EXPECT_THAT(found(48), ElementsAre(SharedPrefix{{0, 1}, 2}));
  EXPECT_THAT(found(47), IsEmpty()) << "the first row does not see the first position";
}

TEST_F(SharedPrefixes, are_not_those_of_sequences_with_several_rows) {
  add({1, 2, 3});
  add({1, 2, 4});
  spans_.front().rows = 2;
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(SharedPrefixes, are_not_looked_for_without_tables) {
  add({1, 2, 3});
  add({1, 2, 4});
  AttentionBatch unknown = batch();
  unknown.host_block_tables = {};
  EXPECT_THAT(find_shared_prefixes(unknown, 0), IsEmpty());
  spans_.clear();
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(SharedPrefixes, are_shared_indeed_by_random_sequences) {
  std::mt19937 engine(5);
  const auto below = [&](std::int32_t bound) {
    return static_cast<std::int32_t>(engine() % static_cast<unsigned>(bound));
  };
  for (int round = 0; round < 200; ++round) {
    spans_.clear();
    table_.clear();
    std::int32_t next = 1000;
    for (std::int32_t row = below(30); row >= 0; --row) {
      // A path of a tree, and then blocks of its own.
      std::vector<std::int32_t> blocks;
      std::int32_t node = 0;
      for (std::int32_t depth = below(6); depth > 0; --depth) {
        node = node * 2 + 1 + below(2);
        blocks.push_back(node);
      }
      for (std::int32_t own = 1 + below(3); own > 0; --own) blocks.push_back(next++);
      add(blocks, 1 + below(16));
    }
    std::vector<int> uses(spans_.size());
    for (const SharedPrefix& prefix : found()) {
      ASSERT_GE(prefix.sequences.size(), 2U);
      ASSERT_GT(prefix.blocks, 0);
      ASSERT_TRUE(std::ranges::is_sorted(prefix.sequences));
      for (const std::int32_t s : prefix.sequences) {
        const SequenceSpan& span = spans_[static_cast<std::size_t>(s)];
        const SequenceSpan& first = spans_[static_cast<std::size_t>(prefix.sequences.front())];
        ASSERT_LE(prefix.blocks * block_size, span.first_position);
        ASSERT_TRUE(std::equal(table_.begin() + span.block_offset,
                               table_.begin() + span.block_offset + prefix.blocks,
                               table_.begin() + first.block_offset));
        ASSERT_EQ(++uses[static_cast<std::size_t>(s)], 1) << "a sequence in two prefixes";
      }
    }
  }
}

}  // namespace
}  // namespace troupe
