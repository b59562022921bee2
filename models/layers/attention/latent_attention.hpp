#pragma once

#include <optional>

#include "models/layers/attention/attention_block.hpp"
#include "models/layers/attention/lightning_indexer.hpp"
#include "models/layers/layer_context.hpp"

namespace troupe {

/// Multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2, section 2.1) in its absorbed form:
/// every head's query is projected into the latent space, so that attention reads the cache's
/// latent vectors directly, and its sums there are projected to the head's values. The cache holds
/// one latent vector and one rotated key per token, shared by all heads and held by every tensor
/// rank; heads are split over the ranks, the projections down to the latent ranks are replicated.
///
/// The inner norms use an epsilon of 1e-6 whatever rms_norm_eps says, as in transformers.
class LatentAttention final : public AttentionBlock {
 public:
  static Result<std::unique_ptr<AttentionBlock>> create(const LayerContext& context,
                                                        std::int64_t layer);

  Result<PendingSum> forward(const Tensor& x, const AttentionMetadata& pass, const Tensor& rope,
                             const KvLayer& cache, const Tensor& out,
                             const HeadRows* heads) const override;
  std::size_t bytes() const override;

 private:
  explicit LatentAttention(const LayerContext& context)
      : config_(*context.config.latent),
        ops_(context.ops),
        group_(context.tensor),
        context_(context.context),
        space_(context.space) {}

  /// The projections of which query heads and keys are made.
  struct Projected {
    Columns unrotated;  ///< [tokens, heads * unrotated_dim]
    Columns rotated;    ///< [tokens, heads * rotated_dim]
    Columns kv;         ///< [tokens, rank + rotated_dim]
  };

  Result<void> load_projections(const LayerContext& context, std::int64_t layer);
  Result<void> load_heads(const LayerContext& context, std::int64_t layer);
  Projected project(const Tensor& x) const;
  /// Attention of the rows of `query`, which are those of `batch`, and the output projection; with
  /// an indexer to the keys that `index` chooses.
  Result<PendingSum> attend(const Tensor& query, const IndexQueries& index,
                            const AttentionBatch& batch, const KvLayer& cache,
                            const Tensor& out) const;

  LatentConfig config_;
  Ops& ops_;
  TensorGroup& group_;
  ContextGroup& context_;
  Workspace& space_;
  AttentionShape shape_;
  /// [LatentBuffers::projected, query_rank or hidden]: as one matrix, as small ones cost more.
  std::unique_ptr<Linear> projection_;
  std::unique_ptr<Linear> query_down_;     // [query_rank, hidden], or null
  DeviceTensor query_down_norm_;           // [query_rank] f32, or empty
  std::unique_ptr<Linear> latent_down_;    // [rank + rotated_dim, hidden]; null without query_down_
  DeviceTensor latent_norm_;               // [rank] f32
  std::unique_ptr<GroupedLinear> key_up_;  // [heads] x [rank, unrotated_dim]
  std::unique_ptr<GroupedLinear> value_up_;  // [heads] x [value_dim, rank]
  std::unique_ptr<Linear> output_;           // [hidden, heads * value_dim]
  std::optional<LightningIndexer> indexer_;  // of sparse attention
};

}  // namespace troupe
