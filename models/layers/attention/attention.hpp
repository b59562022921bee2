#pragma once

#include <optional>

#include "models/layers/attention/attention_block.hpp"
#include "models/layers/attention/head_projection.hpp"
#include "models/layers/layer_context.hpp"

namespace troupe {

/// Grouped-query self-attention (Ainslie et al. 2023), in layers with a window over the last
/// positions only (Beltagy et al. 2020, Longformer, section 3.1). Query heads and their KV heads
/// are split over the tensor ranks (several ranks hold one KV head if there are fewer heads than
/// ranks); the output projection is row-parallel in S segments. Biases are added once to each
/// element, the output's after the sum over ranks.
class Attention final : public AttentionBlock {
 public:
  static Result<std::unique_ptr<AttentionBlock>> create(const LayerContext& context,
                                                        std::int64_t layer);

  Result<PendingSum> forward(const Tensor& x, const AttentionMetadata& pass, const Tensor& rope,
                             const KvLayer& cache, const Tensor& out,
                             const HeadRows* heads) const override;
  const Linear* only_reader() const override { return &projection_->qkv(); }
  std::size_t bytes() const override;

 private:
  Result<void> load_norms(const LayerContext& context, std::int64_t layer);
  Result<void> norm_projections(const Tensor& qkv) const;
  /// Writes keys and values of the rows to the cache, and their queries to the workspace.
  void store(const Tensor& qkv, const AttentionBatch& batch, const Tensor& rope,
             const KvLayer& cache, Slice rows) const;
  void attend(const AttentionBatch& batch, const KvLayer& cache, Slice rows,
              const Tensor& sums) const;
  Result<PendingSum> attend_heads(const HeadRows& heads, const KvLayer& cache,
                                  const Tensor& out) const;
  Result<PendingSum> add_bias(PendingSum sum, const Tensor& out) const;

  explicit Attention(const LayerContext& context)
      : ops_(context.ops),
        group_(context.tensor),
        context_(context.context),
        space_(context.space) {}

  Ops& ops_;
  TensorGroup& group_;
  ContextGroup& context_;
  Workspace& space_;
  AttentionShape shape_;
  float norm_eps_ = 0.0F;
  std::optional<HeadProjection> projection_;
  std::unique_ptr<Linear> output_;  // [hidden, heads * head_dim]
  DeviceTensor output_bias_;        // [hidden] f32, or empty
  DeviceTensor query_norm_;         // [head_dim] f32, or empty; [heads * head_dim] if together
  DeviceTensor key_norm_;           // [head_dim] f32, or empty; [kv_heads * head_dim]
  bool norms_together_ = false;     // QueryKeyNorm::projection
  int kv_copies_ = 1;               // ranks that have the same KV heads
  DeviceTensor sinks_;              // [heads] f32, or empty
};

}  // namespace troupe
