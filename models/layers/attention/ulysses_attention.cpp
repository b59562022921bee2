#include "models/layers/attention/ulysses_attention.hpp"

#include <utility>

#include "models/layers/attention/attention_shape.hpp"

namespace troupe {

Result<std::unique_ptr<AttentionBlock>> UlyssesAttention::create(const LayerContext& context,
                                                                 std::int64_t layer) {
  using enum Parameter;
  const ModelConfig& config = context.config;
  std::unique_ptr<UlyssesAttention> block(new UlyssesAttention(context));
  block->norm_eps_ = config.norm.eps;
  const ShardOf tensor = context.weights.shard();
  const int ranks = context.context.size();
  for (int rank = 0; rank < ranks; ++rank) {
    const ShardOf shard{tensor.rank * ranks + rank, tensor.size * ranks};
    const Weights weights = context.weights.with_shard(shard);
    TROUPE_TRY(const AttentionShape shape, attention_shape(config, layer, shard));
    TROUPE_TRY(auto projection, HeadProjection::load(context, weights, shape, layer));
    block->projections_.push_back(std::move(projection));
    if (rank != context.context.rank()) continue;
    block->shape_ = shape;
    TROUPE_CHECK(weights.set_kv_scales(layer, block->shape_));
    if (!config.attention_sinks) continue;
    TROUPE_TRY(block->sinks_, weights.vector(sinks, layer));
    block->shape_.sinks = block->sinks_;
  }
  if (config.query_key_norm != QueryKeyNorm::none) {
    TROUPE_TRY(block->query_norm_, load_head_norm(context, query_norm, 1, layer));
    TROUPE_TRY(block->key_norm_, load_head_norm(context, key_norm, 1, layer));
  }
  TROUPE_TRY(block->output_, context.weights.linear({output}, layer));
  if (config.output_bias) {
    TROUPE_TRY(block->output_bias_, context.weights.vector(output_bias, layer));
  }
  return std::unique_ptr<AttentionBlock>(std::move(block));
}

Result<Tensor> UlyssesAttention::project(const Tensor& x) const {
  const std::int64_t own = x[0], width = projections_.front().width();
  const auto rank = static_cast<std::size_t>(context_.rank());
  if (!context_.divides()) {
    const Tensor qkv = first_rows(space_.qkv, own, width);
    projections_[rank].apply(ops_, x, qkv);
    return qkv;
  }
  const Tensor by_rank = first_rows(space_.qkv, own * context_.size(), width);
  for (int r = 0; r < context_.size(); ++r) {
    projections_[static_cast<std::size_t>(r)].apply(ops_, x, by_rank.rows(r * own, own));
  }
  return context_.rows_to_heads(by_rank);
}

Result<Tensor> UlyssesAttention::gather_heads(const Tensor& attended, std::int64_t own_rows) const {
  const std::int64_t ranks = context_.size(), width = attended[1];
  const Tensor by_rank = first_rows(space_.qkv, ranks * own_rows, width);
  TROUPE_CHECK(context_.heads_to_rows(attended, by_rank));
  if (own_rows == 1) return by_rank.reshaped({1, ranks * width});
  const Tensor all_heads = first_rows(space_.query, own_rows, ranks * width);
  ops_.dense().concat_columns(by_rank, all_heads);
  return all_heads;
}

Result<PendingSum> UlyssesAttention::forward(const Tensor& x, const AttentionMetadata& pass,
                                             const Tensor& rope, const KvLayer& cache,
                                             const Tensor& out, const HeadRows* heads) const {
  const AttentionBatch& batch = pass.whole();
  const std::int64_t rows = batch.positions[0];
  TROUPE_TRY(const Tensor qkv, project(x));
  const Tensor query = first_rows(space_.query, rows, shape_.heads * shape_.head_dim);
  const Tensor attended = first_rows(space_.attended, rows, shape_.heads * shape_.head_dim);
  ops_.attention().norm_rope_store(qkv, query_norm_, key_norm_, norm_eps_, rope, shape_, batch,
                                   cache, query);
  if (heads != nullptr && heads->count() == 0) return PendingSum();
  ops_.attention().attend(query, shape_, batch, cache, attended);
  TROUPE_TRY(const Tensor all_heads, gather_heads(attended, x[0]));
  TROUPE_TRY(PendingSum sum, group_.defer_all_reduce(x[0], out, [&](const Tensor& sums) {
    ops_.dense().linear(*output_, all_heads, sums);
  }));
  if (output_bias_->empty()) return sum;
  TROUPE_CHECK(group_.complete(std::move(sum), out));
  ops_.dense().add_bias(out, output_bias_);
  return PendingSum();
}

std::size_t UlyssesAttention::bytes() const {
  std::size_t bytes = output_->bytes() + output_bias_->bytes() + query_norm_->bytes() +
                      key_norm_->bytes() + sinks_->bytes();
  for (const HeadProjection& projection : projections_) bytes += projection.bytes();
  return bytes;
}

}  // namespace troupe
