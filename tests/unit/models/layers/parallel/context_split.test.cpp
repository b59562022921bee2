#include "models/layers/parallel/context_split.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using testing::ElementsAre;

using SpanNumbers = std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t>;

std::vector<SpanNumbers> numbers_of(const std::vector<SequenceSpan>& spans) {
  std::vector<SpanNumbers> numbers;
  for (const SequenceSpan& span : spans) {
    numbers.emplace_back(span.first_row, span.rows, span.first_position, span.block_offset);
  }
  return numbers;
}

TEST(ContextSplit, gives_each_rank_an_early_and_a_late_slice) {
  const auto split = ContextSplit::zigzag(24, 3);
  EXPECT_THAT(split.slices(), ElementsAre(Slice{0, 4}, Slice{20, 4}, Slice{4, 4}, Slice{16, 4},
                                          Slice{8, 4}, Slice{12, 4}));
  EXPECT_THAT(split.rows_per_rank(), ElementsAre(8, 8, 8));
  EXPECT_TRUE(split.reorders());
}

TEST(ContextSplit, keeps_the_order_where_each_rank_has_one_slice) {
  const auto split = ContextSplit::contiguous(20, 3);
  EXPECT_THAT(split.slices(), ElementsAre(Slice{0, 6}, Slice{6, 7}, Slice{13, 7}));
  EXPECT_THAT(split.rows_per_rank(), ElementsAre(6, 7, 7));
  EXPECT_FALSE(split.reorders());
  EXPECT_EQ(split.place_of(14), 14);
}

TEST(ContextSplit, has_every_row_once_whatever_divides_what) {
  for (int ranks = 2; ranks <= 5; ++ranks) {
    for (std::int64_t rows = 2 * ranks; rows < 80; ++rows) {
      const auto split = ContextSplit::zigzag(rows, ranks);
      std::vector<std::int32_t> values(static_cast<std::size_t>(rows));
      std::iota(values.begin(), values.end(), 0);
      const auto reordered = split.reorder(values);
      ASSERT_EQ(reordered.size(), values.size());
      for (const std::int32_t row : values) {
        ASSERT_EQ(reordered.at(static_cast<std::size_t>(split.place_of(row))), row)
            << rows << " rows, " << ranks << " ranks";
      }
      const auto [fewest, most] = std::ranges::minmax(split.rows_per_rank());
      EXPECT_GE(fewest, 2) << rows << " rows, " << ranks << " ranks";
      EXPECT_LE(most - fewest, 2) << rows << " rows, " << ranks << " ranks";
    }
  }
}

TEST(ContextSplit, makes_causal_attention_over_a_prompt_cost_all_ranks_the_same) {
  constexpr std::int64_t rows = 8192;
  for (const int ranks : {2, 4, 8}) {
    const auto split = ContextSplit::zigzag(rows, ranks);
    std::vector<std::int64_t> seen;  // positions that each rank's rows see
    for (auto slice = split.slices().begin(); slice != split.slices().end(); slice += 2) {
      std::int64_t positions = 0;
      for (const Slice& own : {slice[0], slice[1]}) {
        for (std::int64_t row = own.begin; row < own.end(); ++row) positions += row + 1;
      }
      seen.push_back(positions);
    }
    EXPECT_EQ(std::ranges::min(seen), std::ranges::max(seen)) << ranks << " ranks";
  }
}

TEST(ContextSplit, cuts_sequences_at_the_slices_and_gives_each_piece_a_table) {
  // Sequences of 5, 1 and 6 rows in slices of 3: rows 0-2 and 9-11, then 3-5 and 6-8.
  const std::vector<SequenceSpan> sequences{{0, 5, 20, 0}, {5, 1, 33, 3}, {6, 6, 0, 7}};
  const std::vector<std::int32_t> tables{90, 91, 92, 80, 81, 82, 83, 70};
  const auto split = ContextSplit::zigzag(12, 2);
  const auto reordered = split.reorder(sequences, tables);
  EXPECT_THAT(
      numbers_of(reordered.spans),
      ElementsAre(SpanNumbers(0, 3, 20, 0), SpanNumbers(3, 3, 3, 3), SpanNumbers(6, 2, 23, 4),
                  SpanNumbers(8, 1, 33, 7), SpanNumbers(9, 3, 0, 11)));
  EXPECT_THAT(reordered.tables, ElementsAre(90, 91, 92, 70, 90, 91, 92, 80, 81, 82, 83, 70));
  EXPECT_LE(std::ssize(reordered.tables) - std::ssize(tables),
            ContextSplit::most_added_entries(2, 4));
}

}  // namespace
}  // namespace troupe
