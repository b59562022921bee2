#include "models/layers/attention/attention.hpp"

#include <utility>

#include "models/layers/attention/attention_shape.hpp"

namespace troupe {

Result<std::unique_ptr<AttentionBlock>> Attention::create(const LayerContext& context,
                                                          std::int64_t layer,
                                                          AttentionOptions options) {
  using enum Parameter;
  const Weights& weights = context.weights;
  std::unique_ptr<Attention> block(new Attention(context));
  block->norm_eps_ = context.config.rms_norm_eps;
  TROUPE_TRY(block->shape_, attention_shape(context.config, layer, weights.shard()));
  TROUPE_TRY(block->qkv_, weights.linear({query, key, value}, layer));
  TROUPE_TRY(block->output_, weights.linear({output}, layer));
  if (context.config.qkv_bias) {
    TROUPE_TRY(block->qkv_bias_, weights.vector({query_bias, key_bias, value_bias}, layer));
  }
  if (context.config.output_bias) {
    TROUPE_TRY(block->output_bias_, weights.vector(output_bias, layer));
  }
  if (options.query_key_norm) {
    TROUPE_TRY(block->query_norm_, weights.vector(query_norm, layer));
    TROUPE_TRY(block->key_norm_, weights.vector(key_norm, layer));
  }
  return std::unique_ptr<AttentionBlock>(std::move(block));
}

Result<PendingSum> Attention::forward(const Tensor& x, const AttentionMetadata& pass,
                                      const Tensor& rope, const KvLayer& cache,
                                      const Tensor& out) const {
  const auto compute = [&](Slice rows, const Tensor& sums) {
    const AttentionBatch& batch = pass.of(rows);
    const Tensor qkv = space_.qkv->rows(rows.begin, rows.count);
    const Tensor query = space_.query->rows(rows.begin, rows.count);
    const Tensor attended = space_.attended->rows(rows.begin, rows.count);
    ops_.dense().linear(*qkv_, x.rows(rows.begin, rows.count), qkv);
    if (!qkv_bias_->empty()) ops_.dense().add_bias(qkv, qkv_bias_);
    ops_.attention().norm_rope_store(qkv, query_norm_, key_norm_, norm_eps_, rope, shape_, batch,
                                     cache, query);
    ops_.attention().attend(query, shape_, batch, cache, attended);
    ops_.dense().linear(*output_, attended, sums);
  };
  TROUPE_TRY(PendingSum sum, group_.defer_all_reduce_by_parts(x[0], out, compute));
  if (output_bias_->empty()) return sum;
  TROUPE_CHECK(group_.complete(std::move(sum), out));
  ops_.dense().add_bias(out, output_bias_);
  return PendingSum();
}

std::size_t Attention::bytes() const {
  return qkv_->bytes() + output_->bytes() + qkv_bias_->bytes() + output_bias_->bytes() +
         query_norm_->bytes() + key_norm_->bytes();
}

}  // namespace troupe
