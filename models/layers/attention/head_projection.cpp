#include "models/layers/attention/head_projection.hpp"

#include <algorithm>

#include "models/layers/norm.hpp"
#include "models/layers/weights/weight_rows.hpp"

namespace troupe {
namespace {

/// The rows of `heads` heads in the order in which devices rotate.
std::vector<std::int64_t> rows_of_heads(const ModelConfig& config, std::int64_t heads) {
  std::vector<std::int64_t> rows;
  for (std::int64_t head = 0; head < heads; ++head) {
    const auto of_head = rows_to_rotate(head * config.head_dim, config.head_dim,
                                        config.rotated_dim(), config.interleaved_rope);
    rows.insert(rows.end(), of_head.begin(), of_head.end());
  }
  return rows;
}

/// The same elements of vectors, which are one after the other and whose last ones stay.
HostTensor rearranged(const HostTensor& values, std::span<const std::int64_t> order) {
  HostTensor turned(DType::f32, values->shape());
  std::ranges::copy(values->span<float>(), turned->as<float>());
  for (std::size_t i = 0; i < order.size(); ++i) {
    turned->as<float>()[i] = values->as<float>()[order[i]];
  }
  return turned;
}

}  // namespace

bool rearranges(const ModelConfig& config) {
  return config.interleaved_rope || config.rotated_dim() != config.head_dim;
}

Result<HeadProjection> HeadProjection::load(const LayerContext& context, const Weights& weights,
                                            const AttentionShape& shape, std::int64_t layer) {
  using enum Parameter;
  HeadProjection projection;
  const std::vector<std::int64_t> order =
      rows_of_heads(context.config, shape.heads + shape.kv_heads);
  if (context.config.qkv_bias) {
    TROUPE_TRY(HostTensor bias, weights.host_vector({query_bias, key_bias, value_bias}, layer));
    if (rearranges(context.config)) bias = rearranged(bias, order);
    TROUPE_TRY(projection.bias_, weights.upload(bias));
  }
  if (!rearranges(context.config)) {
    TROUPE_TRY(projection.qkv_, weights.linear({query, key, value}, layer));
    return projection;
  }
  TROUPE_TRY(const HostTensor qkv, weights.matrix({query, key, value}, layer));
  std::vector<std::int64_t> rows = order;
  for (std::int64_t row = std::ssize(order); row < qkv.view()[0]; ++row) rows.push_back(row);
  TROUPE_TRY(projection.qkv_, weights.prepare({query, key, value}, layer, take_rows(qkv, rows)));
  return projection;
}

void HeadProjection::apply(Ops& ops, const Tensor& x, const Tensor& out) const {
  ops.dense().linear(*qkv_, x, out);
  if (!bias_->empty()) ops.dense().add_bias(out, bias_);
}

Result<DeviceTensor> load_head_norm(const LayerContext& context, Parameter parameter,
                                    std::int64_t heads, std::int64_t layer) {
  TROUPE_TRY(HostTensor weight, norm_weight(context, parameter, layer));
  if (rearranges(context.config)) weight = rearranged(weight, rows_of_heads(context.config, heads));
  return context.weights.upload(weight);
}

}  // namespace troupe
