#pragma once

#include <span>

#include "models/config/model_config.hpp"
#include "models/kv_policy/kv_policy.hpp"
#include "models/ops/ops.hpp"
#include "parallel/mesh/mesh.hpp"
#include "parallel/sharding/sharding.hpp"

namespace troupe {

/// A rank's share of layer `layer`'s attention: its query heads and the KV heads they read. The
/// layers of a model differ only in their window, so their caches have one layout. Errors: sizes
/// that do not divide.
Result<AttentionShape> attention_shape(const ModelConfig& config, std::int64_t layer,
                                       ShardOf shard);

/// Bytes that the cache tensors of a stage, with these residuals, hold of a token: keys and values
/// of `stored` with their scales, the index key of sparse attention, and what the policy observes.
std::size_t kv_bytes_per_token(AttentionShape shape, std::span<const KvResidual> tensors,
                               DType stored, DType index, const KvPolicy& policy);

/// True if context ranks split the attention heads among them (UlyssesAttention): where there are
/// KV heads for each rank, and heads are normalised one by one. Otherwise each has all heads of its
/// tensor rank, and the whole KV cache of these.
bool context_shares_heads(const ModelConfig& config, const MeshShape& shape);
/// The share of the attention heads that `rank` has.
ShardOf head_shard(const ModelConfig& config, const Mesh& mesh, int rank);

}  // namespace troupe
