#include "models/layers/attention/attention_shape.hpp"

#include <cmath>

namespace troupe {

namespace {

Result<AttentionShape> latent_shape(const ModelConfig& config, ShardOf shard) {
  const LatentConfig& latent = *config.latent;
  TROUPE_TRY(const Slice heads, even_slice("heads", config.heads, shard));
  AttentionShape shape;
  shape.heads = heads.count;
  shape.kv_heads = 1;
  shape.head_dim = latent.rank + latent.rotated_dim;
  shape.latent = latent.rank;
  shape.index = {latent.index_heads, latent.index_dim, latent.index_top_k};
  double scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  if (const auto* yarn = std::get_if<YarnRopeScaling>(&config.rope.scaling)) {
    scale *= yarn->attention_factor;
  }
  shape.scale = static_cast<float>(scale);
  return shape;
}

}  // namespace

Result<AttentionShape> attention_shape(const ModelConfig& config, std::int64_t layer,
                                       ShardOf shard) {
  if (config.latent) return latent_shape(config, shard);
  const HeadLayout layout{config.heads, config.kv_heads, config.head_dim};
  TROUPE_TRY(const QkvRows rows, qkv_rows(layout, shard));
  AttentionShape shape;
  shape.heads = rows.q.count / config.head_dim;
  shape.kv_heads = rows.k.count / config.head_dim;
  shape.head_dim = config.head_dim;
  shape.scale = static_cast<float>(config.attention_scale > 0.0
                                       ? config.attention_scale
                                       : 1.0 / std::sqrt(static_cast<double>(config.head_dim)));
  shape.soft_cap = config.attention_soft_cap;
  shape.window = config.window_of(layer);
  shape.has_sinks = config.attention_sinks;
  return shape;
}

std::size_t kv_bytes_per_token(AttentionShape shape, std::span<const KvResidual> tensors,
                               DType stored, DType index, const KvPolicy& policy) {
  const auto bytes = [](std::int64_t elements, DType dtype) {
    return static_cast<std::size_t>(elements) * size_of(dtype);
  };
  const std::int64_t weights = policy.observes_attention() ? shape.kv_heads : 0;
  std::size_t total = tensors.size() * (bytes(shape.index.dim, index) + bytes(weights, DType::f32));
  for (const KvResidual residual : tensors) {
    shape.residual = residual;
    total += bytes(shape.stored_elements(stored), stored);
  }
  return total;
}

bool context_shares_heads(const ModelConfig& config, const MeshShape& shape) {
  return shape.context > 1 && !config.latent && config.query_key_norm != QueryKeyNorm::projection &&
         config.kv_heads % (std::int64_t{shape.context} * shape.tensor) == 0;
}

ShardOf head_shard(const ModelConfig& config, const Mesh& mesh, int rank) {
  const MeshCoordinates at = mesh.coordinates(rank);
  const MeshShape& shape = mesh.shape();
  if (!context_shares_heads(config, shape)) return {at.tensor, shape.tensor};
  return {at.tensor * shape.context + at.context, shape.tensor * shape.context};
}

}  // namespace troupe
