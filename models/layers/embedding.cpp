#include "models/layers/embedding.hpp"

namespace troupe {

Result<Embedding> Embedding::create(const LayerContext& context) {
  TROUPE_TRY(const StoredMatrix rows, context.weights.vocabulary_rows(Parameter::embedding));
  TROUPE_TRY(DeviceTensor table, context.ops.weights().load_table(rows));
  const std::int64_t first_id = context.weights.shard().rank * rows.rows;
  float scale = context.config.embedding_scale;
  if (context.config.rounds_embedding_scale && context.limits.compute == DType::bf16) {
    scale = to_float(to_bfloat16(scale));
  }
  return Embedding(context.ops, context.tensor, std::move(table), first_id, scale);
}

Result<PendingSum> Embedding::forward(const Tensor& ids, const Tensor& out) const {
  return group_.defer_all_reduce(
      ids[0], out,
      [&](const Tensor& sums) {
        ops_.dense().embed(table_, ids, first_id_, sums);
        if (scale_ != 1.0F) ops_.dense().scale(sums, scale_, 0.0F);
      },
      true);
}

}  // namespace troupe
