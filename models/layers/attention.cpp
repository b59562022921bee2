#include "models/layers/attention.hpp"

#include <cmath>

namespace troupe {

Result<AttentionShape> attention_shape(const ModelConfig& config, ShardOf shard) {
  const HeadLayout layout{config.heads, config.kv_heads, config.head_dim};
  TROUPE_TRY(const QkvRows rows, qkv_rows(layout, shard));
  AttentionShape shape;
  shape.heads = rows.q.count / config.head_dim;
  shape.kv_heads = rows.k.count / config.head_dim;
  shape.head_dim = config.head_dim;
  shape.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)));
  return shape;
}

Result<Attention> Attention::create(const LayerContext& context, std::int64_t layer,
                                    AttentionOptions options) {
  const Weights& weights = context.weights;
  Attention block(context);
  block.norm_eps_ = context.config.rms_norm_eps;
  TROUPE_TRY(block.shape_, attention_shape(context.config, weights.shard()));
  TROUPE_TRY(block.qkv_,
             weights.linear({Parameter::query, Parameter::key, Parameter::value}, layer));
  TROUPE_TRY(block.output_, weights.linear({Parameter::output}, layer));
  if (options.query_key_norm) {
    TROUPE_TRY(block.query_norm_, weights.vector(Parameter::query_norm, layer));
    TROUPE_TRY(block.key_norm_, weights.vector(Parameter::key_norm, layer));
  }
  return block;
}

Result<void> Attention::forward(const Tensor& x, const AttentionBatch& batch, const Tensor& rope,
                                const KvLayer& cache, const Tensor& out) const {
  const std::int64_t tokens = x[0];
  const Tensor qkv = space_.qkv->rows(0, tokens);
  const Tensor query = space_.query->rows(0, tokens);
  const Tensor attended = space_.attended->rows(0, tokens);
  ops_.linear(*qkv_, x, qkv);
  ops_.norm_rope_store(qkv, query_norm_, key_norm_, norm_eps_, rope, shape_, batch, cache, query);
  ops_.attention(query, shape_, batch, cache, attended);
  return group_.sum_to_owners(tokens, 1, out,
                              [&](const Tensor& sums) { ops_.linear(*output_, attended, sums); });
}

std::size_t Attention::bytes() const {
  return qkv_->bytes() + output_->bytes() + query_norm_->bytes() + key_norm_->bytes();
}

}  // namespace troupe
