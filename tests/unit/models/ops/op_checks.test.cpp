#include "models/ops/op_checks.hpp"

#include <gtest/gtest.h>

#include "models/ops/attention_ops.hpp"
#include "models/ops/linear.hpp"
#include "models/ops/moe_ops.hpp"
#include "models/ops/sampling_ops.hpp"

namespace troupe {
namespace {

class SmallLinear final : public Linear {
 public:
  std::int64_t out_features() const override { return 6; }
  std::int64_t in_features() const override { return 4; }
  std::size_t bytes() const override { return 0; }
};

Tensor floats(const Shape& shape) { return {nullptr, DType::f32, shape}; }
Tensor integers(const Shape& shape) { return {nullptr, DType::i32, shape}; }

TEST(OpChecks, take_what_the_headers_say) {
  op_checks::linear(SmallLinear(), floats({3, 4}), floats({3, 6}));
  op_checks::linear(SmallLinear(), floats({0, 4}), floats({0, 6}));
  op_checks::linear_gate_up(SmallLinear(), floats({3, 4}), floats({3, 6}), floats({3, 3}));
  const SmallLinear next;
  op_checks::rms_norm(floats({3, 4}), floats({4}), floats({3, 4}), &next);
  op_checks::embed(floats({10, 4}), integers({3}), floats({3, 4}));
  op_checks::tree_sum(floats({6, 4}), floats({3, 4}));
}

TEST(OpChecks, name_the_operation_and_the_tensor_that_is_wrong) {
  EXPECT_DEATH(op_checks::linear(SmallLinear(), floats({3, 5}), floats({3, 6})),
               "linear: x: expected f32 \\[3, 4\\], found f32 \\[3, 5\\]");
  EXPECT_DEATH(op_checks::linear(SmallLinear(), floats({3, 4}), floats({2, 6})),
               "linear: out: expected f32 \\[3, 6\\], found f32 \\[2, 6\\]");
  EXPECT_DEATH(op_checks::linear(SmallLinear(), integers({3, 4}), floats({3, 6})),
               "linear: x: expected f32 \\[3, 4\\], found i32 \\[3, 4\\]");
  EXPECT_DEATH(op_checks::add_rms_norm(floats({3, 4}), floats({2, 4}), floats({4}), floats({3, 4})),
               "add: residual");
  const SmallLinear next;
  EXPECT_DEATH(
      op_checks::add_rms_norm(floats({3, 5}), floats({3, 5}), floats({5}), floats({3, 5}), &next),
      "rms_norm: out for the next matrix: expected f32 \\[3, 4\\], found f32 \\[3, 5\\]");
  EXPECT_DEATH(
      op_checks::linear_gate_up(next, floats({3, 4}), floats({3, 6}), floats({3, 3}), &next),
      "linear_gate_up: out for the next matrix");
  EXPECT_DEATH(op_checks::copy(floats({3}), integers({3})), "upload or download");
  EXPECT_DEATH(op_checks::tree_sum(floats({5, 4}), floats({3, 4})), "tree_sum");
}

TEST(OpChecks, find_a_batch_of_experts_that_does_not_fit_their_ids) {
  const ExpertBatch batch{.offsets = integers({5}), .source = integers({6})};
  op_checks::permute(integers({3, 2}), batch);
  EXPECT_DEATH(op_checks::permute(integers({4, 2}), batch), "experts' source");
  EXPECT_DEATH(op_checks::count_rows(batch, {nullptr, DType::i64, {5}}), "count_rows: counts");
}

TEST(OpChecks, find_a_pass_whose_queries_are_not_its_tokens) {
  const AttentionShape shape{.heads = 4, .kv_heads = 2, .head_dim = 8};
  AttentionBatch batch;
  batch.positions = integers({3});
  batch.kv_slots = integers({3});
  batch.block_tables = integers({1});
  const KvLayer cache{floats({1, 2, 8, 16}), floats({1, 2, 16, 8})};
  op_checks::attend(floats({3, 32}), shape, batch, cache, floats({3, 32}));
  EXPECT_DEATH(op_checks::attend(floats({2, 32}), shape, batch, cache, floats({3, 32})),
               "attend: q");
  EXPECT_DEATH(op_checks::attend(floats({3, 32}), shape, batch, {cache.keys, {}}, floats({3, 32})),
               "only latent caches lack values");
  AttentionShape with_sinks = shape;
  with_sinks.sinks = floats({4});
  op_checks::attend(floats({3, 32}), with_sinks, batch, cache, floats({3, 32}));
  with_sinks.sinks = floats({2});
  EXPECT_DEATH(op_checks::attend(floats({3, 32}), with_sinks, batch, cache, floats({3, 32})),
               "attend: sinks: expected f32 \\[4\\], found f32 \\[2\\]");
}

TEST(OpChecks, find_columns_that_a_matrix_does_not_have_or_heads_do_not_want) {
  class Heads final : public GroupedLinear {
   public:
    std::int64_t experts() const override { return 3; }
    std::int64_t out_features() const override { return 5; }
    std::int64_t in_features() const override { return 4; }
    std::size_t bytes() const override { return 0; }
  };
  const Heads heads;
  op_checks::heads_linear(heads, {floats({2, 20}), 8, 12}, floats({2, 18}));
  EXPECT_DEATH(op_checks::heads_linear(heads, {floats({2, 20}), 9, 12}, floats({2, 18})),
               "columns of a matrix");
  EXPECT_DEATH(op_checks::heads_linear(heads, {floats({2, 20}), 8, 11}, floats({2, 18})),
               "heads_linear: x: expected f32 \\[2, 12\\], found f32 \\[2, 11\\]");
  EXPECT_DEATH(op_checks::heads_linear(heads, {floats({2, 20}), 8, 12}, floats({2, 12})),
               "out has columns for each head");
}

TEST(OpChecks, find_a_row_that_the_logits_do_not_have) {
  const SampledRow row{.row = 2};
  EXPECT_DEATH(op_checks::sample(floats({2, 50}), {&row, 1}, integers({0}), integers({3})),
               "rows are of the logits");
}

}  // namespace
}  // namespace troupe
