#include "actors/worker/pass.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/ops/cpu/cpu_ops.hpp"

namespace troupe {
namespace {

using testing::ElementsAre;

constexpr std::int32_t trash = 100;

class Passes : public testing::Test {
 protected:
  Passes() : ops_(*make_cpu_ops({.threads = 1, .dtype = DType::f32})) {}

  Pass make_pass(std::int64_t max_rows = 64, int context_ranks = 1, bool cascades = true) {
    const ModelLimits limits{.max_batch_tokens = max_rows,
                             .max_head_rows = max_rows,
                             .max_positions = 64,
                             .block_size = 16,
                             .cascade_attention = cascades};
    return *Pass::create(*ops_, limits, trash + 1, 1, context_ranks);
  }
  /// A sequence of one row at `position`, whose blocks are block, block + 1, ...
  static void add(Pass& pass, std::int32_t block, std::int32_t position, std::int32_t token) {
    std::vector<std::int32_t> blocks;
    for (std::int32_t b = 0; b <= position / 16; ++b) blocks.push_back(block + b);
    const Pass::Tables tables{blocks};
    pass.begin_sequence(tables, blocks.size(), position);
    pass.add_row(tables, token, position, true);
  }
  /// A sequence of two rows, the second with logits, and one of a single row.
  static void add_two_sequences(Pass& pass) {
    const Pass::Tables tables{{7, 3}};
    pass.begin_sequence(tables, 2, 15);
    pass.add_row(tables, 40, 15, false);
    pass.add_row(tables, 41, 16, true);
    add(pass, 5, 0, 42);
  }
  static std::vector<std::int32_t> values(const Tensor& tensor) {
    const auto span = tensor.span<std::int32_t>();
    return {span.begin(), span.end()};
  }

  std::unique_ptr<Ops> ops_;
};

TEST_F(Passes, upload_rows_slots_tables_and_spans) {
  Pass pass = make_pass();
  add_two_sequences(pass);
  const ForwardBatch batch = *pass.upload();
  EXPECT_THAT(values(batch.token_ids), ElementsAre(40, 41, 42));
  EXPECT_THAT(values(batch.head_rows), ElementsAre(1, 2));
  ASSERT_EQ(batch.attention.size(), 1U);
  const AttentionBatch& attention = batch.attention[0];
  EXPECT_THAT(values(attention.positions), ElementsAre(15, 16, 0));
  EXPECT_THAT(values(attention.kv_slots), ElementsAre(7 * 16 + 15, 3 * 16, 5 * 16));
  EXPECT_THAT(values(attention.block_tables), ElementsAre(7, 3, 5));
  EXPECT_THAT(values(attention.spans), ElementsAre(0, 2, 15, 0, 2, 1, 0, 2));
  EXPECT_FALSE(batch.graph_captured);
}

TEST_F(Passes, show_attention_the_tables_by_which_it_finds_shared_prefixes) {
  for (const bool cascades : {true, false}) {
    Pass pass = make_pass(64, 1, cascades);
    add(pass, 7, 20, 40);
    add(pass, 7, 30, 41);
    const ForwardBatch batch = *pass.upload();
    const std::span<const std::int32_t> shown = batch.attention[0].host_block_tables;
    const std::vector<std::int32_t> found(shown.begin(), shown.end());
    if (cascades) {
      EXPECT_THAT(found, ElementsAre(7, 8, 7, 8));
    } else {
      EXPECT_TRUE(found.empty());
    }
  }
}

TEST_F(Passes, have_room_for_sequences_that_share_blocks) {
  Pass pass = make_pass();
  // 256 entries, of a cache of 101 blocks.
  for (int sequence = 0; sequence < 64; ++sequence) {
    ASSERT_TRUE(pass.has_room_for_tables(4)) << sequence;
    add(pass, 7, 63, 40);
  }
  EXPECT_EQ(pass.upload()->attention[0].block_tables.elements(), 256);
}

TEST_F(Passes, describe_the_rows_that_need_logits_as_sequences_of_one_row) {
  Pass pass = make_pass();
  add_two_sequences(pass);
  const ForwardBatch batch = *pass.upload();
  ASSERT_EQ(batch.head_attention.size(), 1U);
  const AttentionBatch& heads = batch.head_attention[0];
  EXPECT_THAT(values(heads.positions), ElementsAre(16, 0));
  EXPECT_THAT(values(heads.kv_slots), ElementsAre(3 * 16, 5 * 16));
  EXPECT_THAT(values(heads.spans), ElementsAre(0, 1, 16, 0, 1, 1, 0, 2));
  EXPECT_EQ(heads.sequences.size(), 2U);
}

TEST_F(Passes, that_context_ranks_share_have_each_ranks_rows_together) {
  Pass pass = make_pass(64, 2);
  const Pass::Tables tables{{7, 3}};
  pass.begin_sequence(tables, 2, 13);
  for (std::int32_t i = 0; i < 7; ++i) pass.add_row(tables, 40 + i, 13 + i, i == 6);
  add(pass, 5, 0, 50);
  pass.divide_rows(ContextSplit::zigzag(pass.rows(), 2));
  const ForwardBatch batch = *pass.upload();
  EXPECT_THAT(batch.rows_per_context_rank, ElementsAre(4, 4));
  EXPECT_THAT(values(batch.token_ids), ElementsAre(40, 41, 46, 50, 42, 43, 44, 45));
  EXPECT_THAT(values(batch.head_rows), ElementsAre(2, 3)) << "in the order of the sequences";
  const AttentionBatch& attention = batch.attention[0];
  EXPECT_THAT(values(attention.positions), ElementsAre(13, 14, 19, 0, 15, 16, 17, 18));
  EXPECT_THAT(values(attention.kv_slots), ElementsAre(7 * 16 + 13, 7 * 16 + 14, 3 * 16 + 3, 5 * 16,
                                                      7 * 16 + 15, 3 * 16, 3 * 16 + 1, 3 * 16 + 2));
  EXPECT_THAT(values(attention.block_tables), ElementsAre(7, 3, 7, 3, 5, 7, 3, 7, 3))
      << "each piece of a sequence has a table of its own";
  EXPECT_THAT(values(attention.spans),
              ElementsAre(0, 2, 13, 0, 2, 1, 19, 2, 3, 1, 0, 4, 4, 2, 15, 5, 6, 2, 17, 7));
  pass.clear();
  add(pass, 5, 0, 50);
  EXPECT_TRUE(pass.upload()->rows_per_context_rank.empty()) << "the next pass is another one";
}

TEST_F(Passes, of_single_rows_are_padded_to_a_length_and_lie_where_others_of_it_lie) {
  Pass pass = make_pass();
  for (std::int32_t s = 0; s < 3; ++s) add(pass, s, s, 50 + s);
  pass.pad_for_recording(trash);
  const ForwardBatch batch = *pass.upload();
  EXPECT_TRUE(batch.graph_captured);
  EXPECT_TRUE(batch.attention[0].graph_captured);
  EXPECT_THAT(values(batch.token_ids), ElementsAre(50, 51, 52, 50));
  EXPECT_THAT(values(batch.attention[0].kv_slots), ElementsAre(0, 17, 34, trash * 16));
  EXPECT_THAT(values(batch.head_rows), ElementsAre(0, 1, 2, 3));
  const void* const places[] = {batch.token_ids.data(), batch.attention[0].kv_slots.data(),
                                batch.attention[0].block_tables.data(),
                                batch.attention[0].spans.data(), batch.head_rows.data()};
  pass.clear();
  for (std::int32_t s = 0; s < 4; ++s) add(pass, 4 * s, 40, s);  // longer tables
  pass.pad_for_recording(trash);
  const ForwardBatch other = *pass.upload();
  EXPECT_THAT(places, ElementsAre(other.token_ids.data(), other.attention[0].kv_slots.data(),
                                  other.attention[0].block_tables.data(),
                                  other.attention[0].spans.data(), other.head_rows.data()));
}

TEST_F(Passes, are_not_padded_where_a_sequence_has_several_rows_or_no_room_is_left) {
  Pass mixed = make_pass();
  const Pass::Tables tables{{0}};
  mixed.begin_sequence(tables, 1, 0);
  mixed.add_row(tables, 1, 0, false);
  mixed.add_row(tables, 2, 1, true);
  mixed.pad_for_recording(trash);
  EXPECT_EQ(mixed.rows(), 2);
  EXPECT_FALSE(mixed.upload()->graph_captured);

  Pass full = make_pass(3);
  for (std::int32_t s = 0; s < 3; ++s) add(full, s, 0, s);
  full.pad_for_recording(trash);
  EXPECT_EQ(full.rows(), 3);
  EXPECT_FALSE(full.upload()->graph_captured);
}

TEST_F(Passes, tell_whether_tokens_are_awaited) {
  Pass pass = make_pass();
  add(pass, 0, 0, 7);
  EXPECT_FALSE(pass.awaits_tokens());
  add(pass, 1, 0, -1);
  EXPECT_TRUE(pass.awaits_tokens());
  const ForwardBatch batch = *pass.upload();
  const std::vector<std::int32_t> chosen = {9};
  const HostTensor ids(DType::i32, {1});
  ids->as<std::int32_t>()[0] = chosen[0];
  ops_->sampling().resolve_sampled_ids(ids, batch.token_ids);
  EXPECT_THAT(values(batch.token_ids), ElementsAre(7, 9));
  pass.clear();
  EXPECT_FALSE(pass.awaits_tokens());
}

TEST(RecordedRows, are_a_few_lengths_not_much_longer) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t rows = 1; rows <= 1024; ++rows) {
    const std::int64_t graph_captured = graph_rows(rows);
    ASSERT_GE(graph_captured, rows);
    ASSERT_LE(graph_captured, 2 * rows) << rows;
    ASSERT_EQ(graph_rows(graph_captured), graph_captured) << rows;
    if (lengths.empty() || lengths.back() != graph_captured) lengths.push_back(graph_captured);
  }
  EXPECT_LE(lengths.size(), 24U);
}

}  // namespace
}  // namespace troupe
