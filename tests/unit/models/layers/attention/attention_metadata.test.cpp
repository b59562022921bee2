#include "models/layers/attention/attention_metadata.hpp"

#include <array>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace troupe {

static bool operator==(const SequenceSpan& a, const SequenceSpan& b) {
  return a.first_row == b.first_row && a.rows == b.rows && a.first_position == b.first_position &&
         a.block_offset == b.block_offset;
}

namespace {

/// Three sequences of 5, 1 and 4 rows, whose tables begin at 0, 3 and 7.
class AttentionMetadataTest : public testing::Test {
 protected:
  AttentionMetadataTest() {
    std::iota(numbers_.begin(), numbers_.end(), 0);
    batch_.positions = Tensor(numbers_.data(), DType::i32, {10});
    batch_.kv_slots = Tensor(numbers_.data(), DType::i32, {10});
    batch_.sequences = spans_;
  }

  static std::vector<SequenceSpan> spans_of(const AttentionBatch& batch) {
    return {batch.sequences.begin(), batch.sequences.end()};
  }

  const std::vector<SequenceSpan> spans_{{0, 5, 20, 0}, {5, 1, 33, 3}, {6, 4, 0, 7}};
  std::array<std::int32_t, 10> numbers_{};
  AttentionBatch batch_;
};

TEST_F(AttentionMetadataTest, is_the_batch_itself_where_it_is_not_cut) {
  const std::vector<Slice> all{{0, 10}};
  const AttentionMetadata pass(batch_, {0, 10}, all);
  ASSERT_EQ(pass.batches().size(), 1U);
  EXPECT_EQ(spans_of(pass.batches()[0]), spans_);
  EXPECT_EQ(&pass.of({0, 10}), &pass.whole());
}

TEST_F(AttentionMetadataTest, cuts_sequences_where_the_pass_is_cut) {
  const std::vector<Slice> parts{{0, 2}, {2, 0}, {2, 5}, {7, 3}};
  const AttentionMetadata pass(batch_, {0, 10}, parts);
  const std::vector<std::vector<SequenceSpan>> expected{
      {{0, 2, 20, 0}}, {}, {{0, 3, 22, 0}, {3, 1, 33, 3}, {4, 1, 0, 7}}, {{0, 3, 1, 7}}};
  ASSERT_EQ(pass.batches().size(), parts.size());
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const AttentionBatch& part = pass.of(parts[p]);
    EXPECT_EQ(&part, &pass.batches()[p]);
    EXPECT_EQ(spans_of(part), expected[p]) << "part " << p;
    EXPECT_EQ(part.first_row, parts[p].begin);
    EXPECT_EQ(part.part, static_cast<int>(p));
    ASSERT_EQ(part.positions.elements(), parts[p].count);
    ASSERT_EQ(part.kv_slots.elements(), parts[p].count);
    if (parts[p].count == 0) continue;
    EXPECT_EQ(part.positions.as<std::int32_t>()[0], parts[p].begin);
    EXPECT_EQ(part.kv_slots.as<std::int32_t>()[0], parts[p].begin);
  }
}

TEST_F(AttentionMetadataTest, has_the_own_rows_of_a_pass_that_context_ranks_share) {
  const std::vector<Slice> all{{0, 4}};
  const AttentionMetadata pass(batch_, {3, 4}, all);
  ASSERT_EQ(pass.batches().size(), 1U);
  const AttentionBatch& own = pass.of({0, 4});
  EXPECT_EQ(&own, &pass.whole());
  EXPECT_EQ(spans_of(own), (std::vector<SequenceSpan>{{0, 2, 23, 0}, {2, 1, 33, 3}, {3, 1, 0, 7}}));
  EXPECT_EQ(own.first_row, 3);
  ASSERT_EQ(own.positions.elements(), 4);
  EXPECT_EQ(own.positions.as<std::int32_t>()[0], 3);
  EXPECT_EQ(pass.kv_slots_of_pass().elements(), 10) << "those of the other ranks, too";
}

}  // namespace
}  // namespace troupe
