#pragma once

#include "models/layers/layer_context.hpp"

namespace troupe {

/// How a family's attention differs from the plainest.
struct AttentionOptions {
  bool query_key_norm = false;  ///< RMSNorm of every query and key head before rotation
};

/// The query heads of a rank and the KV heads they read.
Result<AttentionShape> attention_shape(const ModelConfig& config, ShardOf shard);

/// Grouped-query self-attention over the paged cache (Ainslie et al. 2023). Query heads are split
/// over the tensor ranks and KV heads with them (one KV head is held by several ranks where there
/// are fewer); the output projection is row-parallel in S segments.
class Attention {
 public:
  static Result<Attention> create(const LayerContext& context, std::int64_t layer,
                                  AttentionOptions options);

  /// Writes this pass's keys and values to `cache` and the block's output, the same on all ranks,
  /// to `out`. x [tokens, hidden] activation, rope as rope_table, out [tokens, hidden] f32.
  Result<void> forward(const Tensor& x, const AttentionBatch& batch, const Tensor& rope,
                       const KvLayer& cache, const Tensor& out) const;
  std::size_t bytes() const;

 private:
  explicit Attention(const LayerContext& context)
      : ops_(context.ops), group_(context.tensor), space_(context.space) {}

  Ops& ops_;
  TensorGroup& group_;
  Workspace& space_;
  AttentionShape shape_;
  float norm_eps_ = 0.0F;
  std::unique_ptr<Linear> qkv_;     // [(heads + 2 kv_heads) * head_dim, hidden]
  std::unique_ptr<Linear> output_;  // [hidden, heads * head_dim]
  DeviceTensor query_norm_;         // [head_dim] f32, or empty
  DeviceTensor key_norm_;           // [head_dim] f32, or empty
};

}  // namespace troupe
