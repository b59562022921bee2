#include "parallel/sharding/sharding.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace troupe {
namespace {

template <class T>
std::string refusal(const Result<T>& result) {
  return result.ok() ? "accepted" : result.error().message;
}

TEST(Sharding, even_slices_cover_the_extent_without_overlap) {
  for (const int size : {1, 2, 4, 8}) {
    std::int64_t next = 0;
    for (int rank = 0; rank < size; ++rank) {
      const auto slice = even_slice("rows", 64, {rank, size});
      ASSERT_TRUE(slice.ok());
      EXPECT_EQ(slice->begin, next);
      EXPECT_EQ(slice->count, 64 / size);
      next = slice->end();
    }
    EXPECT_EQ(next, 64);
  }
  EXPECT_EQ(refusal(even_slice("intermediate size", 10, {0, 4})),
            "tensor size 4 does not divide intermediate size 10");
}

TEST(Sharding, ceil_slices_leave_the_last_ranks_less_or_nothing) {
  EXPECT_EQ(ceil_slice(10, {0, 4}), (Slice{0, 3}));
  EXPECT_EQ(ceil_slice(10, {3, 4}), (Slice{9, 1}));
  EXPECT_EQ(ceil_slice(2, {3, 4}), (Slice{2, 0}));
  EXPECT_EQ(ceil_slice(0, {1, 2}), (Slice{0, 0}));
  for (std::int64_t extent = 0; extent < 40; ++extent) {
    for (int size = 1; size <= 9; ++size) {
      std::int64_t next = 0;
      for (int rank = 0; rank < size; ++rank) {
        const Slice slice = ceil_slice(extent, {rank, size});
        ASSERT_EQ(slice.begin, next) << extent << " over " << size;
        next = slice.end();
      }
      ASSERT_EQ(next, extent) << extent << " over " << size;
    }
  }
}

TEST(Sharding, kv_heads_are_replicated_where_ranks_outnumber_them) {
  EXPECT_EQ(*kv_head_slice(8, {1, 2}), (Slice{4, 4}));
  EXPECT_EQ(*kv_head_slice(2, {0, 8}), (Slice{0, 1}));
  EXPECT_EQ(*kv_head_slice(2, {3, 8}), (Slice{0, 1}));
  EXPECT_EQ(*kv_head_slice(2, {4, 8}), (Slice{1, 1}));
  EXPECT_EQ(refusal(kv_head_slice(3, {0, 2})), "tensor size 2 does not divide KV heads 3");
  EXPECT_EQ(refusal(kv_head_slice(3, {0, 4})), "KV heads 3 do not divide tensor size 4");
}

TEST(Sharding, each_rule_cuts_the_dimension_it_says) {
  const HeadLayout layout{.heads = 8, .kv_heads = 2, .head_dim = 16};
  const ShardOf shard{1, 4};
  const auto cut = [&](ShardRule rule, std::int64_t rows, std::int64_t cols) {
    const auto part = shard_weight("w", rule, rows, cols, layout, shard);
    EXPECT_TRUE(part.ok()) << part.error().message;
    return *part;
  };
  EXPECT_EQ(cut(ShardRule::replicated, 6, 10), (WeightShard{{0, 6}, {0, 10}}));
  EXPECT_EQ(cut(ShardRule::column, 12, 10), (WeightShard{{3, 3}, {0, 10}}));
  EXPECT_EQ(cut(ShardRule::row, 6, 12), (WeightShard{{0, 6}, {3, 3}}));
  EXPECT_EQ(cut(ShardRule::vocabulary, 10, 7), (WeightShard{{3, 3}, {0, 7}}));
  EXPECT_EQ(cut(ShardRule::heads, 128, 64), (WeightShard{{32, 32}, {0, 64}}));
  EXPECT_EQ(cut(ShardRule::kv_heads, 32, 64), (WeightShard{{0, 16}, {0, 64}}));
  EXPECT_EQ(cut(ShardRule::heads_in, 64, 128), (WeightShard{{0, 64}, {32, 32}}));
}

TEST(Sharding, refusals_name_the_weight_and_what_does_not_divide) {
  const HeadLayout layout{.heads = 6, .kv_heads = 2, .head_dim = 16};
  EXPECT_EQ(refusal(shard_weight("up_proj", ShardRule::column, 10, 4, layout, {0, 4})),
            "tensor size 4 does not divide output features of up_proj 10");
  EXPECT_EQ(refusal(shard_weight("q_proj", ShardRule::heads, 96, 4, layout, {0, 4})),
            "tensor size 4 does not divide heads of q_proj 6");
  EXPECT_EQ(refusal(shard_weight("q_proj", ShardRule::heads, 64, 4, layout, {0, 2})),
            "q_proj: expected 96 rows (6 heads of 16), found 64");
}

TEST(Sharding, query_heads_stay_with_the_kv_heads_they_read) {
  struct Case {
    HeadLayout layout;
    int size;
  };
  for (const auto& [layout, size] : {Case{{8, 2, 16}, 1}, Case{{8, 2, 16}, 2}, Case{{8, 2, 16}, 4},
                                     Case{{8, 2, 16}, 8}, Case{{32, 8, 128}, 4}}) {
    const std::int64_t queries_per_kv = layout.heads / layout.kv_heads;
    std::int64_t next_query = 0;
    for (int rank = 0; rank < size; ++rank) {
      const auto rows = qkv_rows(layout, {rank, size});
      ASSERT_TRUE(rows.ok()) << rows.error().message;
      EXPECT_EQ(rows->q.begin, next_query);
      next_query = rows->q.end();
      EXPECT_EQ(rows->k, rows->v);
      EXPECT_EQ(rows->total(), rows->q.count + 2 * rows->k.count);
      for (std::int64_t row = rows->q.begin; row < rows->q.end(); row += layout.head_dim) {
        const std::int64_t kv_row = row / layout.head_dim / queries_per_kv * layout.head_dim;
        EXPECT_TRUE(kv_row >= rows->k.begin && kv_row < rows->k.end())
            << "rank " << rank << " of " << size << ": query row " << row << " reads " << kv_row;
      }
    }
    EXPECT_EQ(next_query, layout.heads * layout.head_dim);
  }
  EXPECT_EQ(refusal(qkv_rows({6, 4, 8}, {0, 2})), "KV heads 4 do not divide heads 6");
}

TEST(Sharding, gate_and_up_are_cut_alike) {
  EXPECT_EQ(*gate_up_rows(96, {1, 2}), (Slice{48, 48}));
  EXPECT_EQ(refusal(gate_up_rows(97, {1, 2})),
            "tensor size 2 does not divide intermediate size 97");
}

TEST(Sharding, segments_are_the_largest_power_of_two_up_to_eight) {
  const std::vector<std::pair<std::int64_t, int>> expected = {
      {1, 1}, {2, 2}, {3, 1}, {4, 4}, {6, 2}, {8, 8}, {12, 4}, {16, 8}, {768, 8}, {28, 4}, {7, 1}};
  for (const auto& [extent, segments] : expected) {
    EXPECT_EQ(row_parallel_segments(extent), segments) << extent;
  }
  EXPECT_EQ(*segments_per_rank("heads", 16, 2), 4);
  EXPECT_EQ(refusal(segments_per_rank("heads", 12, 8)),
            "tensor size 8 does not divide the 4 segments of heads 12, which keep results the same "
            "at every tensor size");
  EXPECT_FALSE(segments_per_rank("heads", 12, 3).ok());
}

TEST(Sharding, segments_are_no_more_than_asked_for) {
  EXPECT_EQ(row_parallel_segments(768, 4), 4);
  EXPECT_EQ(row_parallel_segments(6, 4), 2);
  EXPECT_EQ(*segments_per_rank("heads", 16, 2, 4), 2);
  EXPECT_EQ(*segments_per_rank("heads", 16, 4, 4), 1);
  EXPECT_EQ(refusal(segments_per_rank("heads", 16, 8, 4)),
            "tensor size 8 does not divide the 4 segments of heads 16, which keep results the same "
            "at every tensor size");
}

}  // namespace
}  // namespace troupe
