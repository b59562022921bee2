#pragma once

#include <vector>

#include "models/layers/attention/attention_block.hpp"
#include "models/layers/attention/head_projection.hpp"

namespace troupe {

/// Attention (attention.hpp) whose heads are split over the context ranks, too (Jacobs et al. 2023,
/// DeepSpeed Ulysses, section 3): each has the KV cache of its KV heads, for all tokens. In a
/// divided pass a rank projects its own rows for all heads; an all-to-all gives it all rows of its
/// own heads, with which it attends; another one returns its own rows of all heads, which the
/// output projection needs. Otherwise each rank projects all rows for its own heads only, and one
/// all-gather completes the rows.
///
/// A head's arithmetic and the output projection's are those of one rank.
class UlyssesAttention final : public AttentionBlock {
 public:
  static Result<std::unique_ptr<AttentionBlock>> create(const LayerContext& context,
                                                        std::int64_t layer);

  Result<PendingSum> forward(const Tensor& x, const AttentionMetadata& pass, const Tensor& rope,
                             const KvLayer& cache, const Tensor& out,
                             const HeadRows* heads) const override;
  std::size_t bytes() const override;

 private:
  explicit UlyssesAttention(const LayerContext& context)
      : ops_(context.ops),
        group_(context.tensor),
        context_(context.context),
        space_(context.space) {}

  /// Returns the projections of all rows of the pass for this rank's heads.
  Result<Tensor> project(const Tensor& x) const;
  /// Returns the attended rows of this rank, of all heads. attended [rows of the pass, own heads].
  Result<Tensor> gather_heads(const Tensor& attended, std::int64_t own_rows) const;

  Ops& ops_;
  TensorGroup& group_;
  ContextGroup& context_;
  Workspace& space_;
  AttentionShape shape_;  // of this rank's heads
  float norm_eps_ = 0.0F;
  std::vector<HeadProjection> projections_;  // to the heads of each context rank
  std::unique_ptr<Linear> output_;           // [hidden, heads of all context ranks * head_dim]
  DeviceTensor output_bias_;                 // [hidden] f32, or empty
  DeviceTensor query_norm_;                  // [head_dim] f32, or empty
  DeviceTensor key_norm_;                    // [head_dim] f32, or empty
  DeviceTensor sinks_;                       // [own heads] f32, or empty
};

}  // namespace troupe
