#include "models/layers/embedding.hpp"

namespace troupe {

Result<Embedding> Embedding::create(const LayerContext& context) {
  TROUPE_TRY(const StoredMatrix rows, context.weights.vocabulary_rows(Parameter::embedding));
  TROUPE_TRY(DeviceTensor table, context.ops.weights().load_table(rows));
  const std::int64_t first_id = context.weights.dense_shard().rank * rows.rows;
  float scale = context.config.embedding_scale;
  if (context.config.rounds_embedding_scale && context.limits.compute == DType::bf16) {
    scale = to_float(to_bfloat16(scale));
  }
  return Embedding(context, std::move(table), first_id, scale);
}

Result<PendingSum> Embedding::forward(const Tensor& ids, const Tensor& out) const {
  const auto embed = [&](const Tensor& of, const Tensor& sums) {
    ops_.dense().embed(table_, of, first_id_, sums);
    if (scale_ != 1.0F) ops_.dense().scale(sums, scale_, 0.0F);
  };
  if (dense_ != nullptr) {
    TROUPE_CHECK(dense_->sum_over_ranks(ids, out, embed, true));
    return PendingSum();
  }
  return group_.defer_all_reduce(ids[0], out, [&](const Tensor& sums) { embed(ids, sums); }, true);
}

}  // namespace troupe
