#pragma once

#include "models/layers/attention/attention_block.hpp"
#include "models/layers/feed_forward.hpp"
#include "models/layers/hidden_state.hpp"
#include "models/layers/layer_context.hpp"

namespace troupe {

/// One layer in the pre-norm form: x += attention(norm(x)), then x += feed_forward(norm(x)).
class DecoderLayer {
 public:
  static Result<DecoderLayer> create(const LayerContext& context, std::int64_t layer,
                                     std::unique_ptr<AttentionBlock> attention,
                                     std::unique_ptr<FeedForward> feed_forward);

  /// `hidden` holds this rank's own tokens of the pass. A pass without tokens serves other
  /// replicas, whose tokens may reach this rank's experts. Errors: those of Collectives.
  Result<void> forward(HiddenState& hidden, const AttentionMetadata& pass, const Tensor& rope,
                       const KvLayer& cache) const;
  /// See FeedForward::rows_per_expert.
  Tensor rows_per_expert() const { return feed_forward_->rows_per_expert(); }
  std::size_t bytes() const;

 private:
  DecoderLayer(const LayerContext& context, std::unique_ptr<AttentionBlock> attention,
               std::unique_ptr<FeedForward> feed_forward)
      : ops_(context.ops),
        group_(context.tensor),
        space_(context.space),
        norm_eps_(context.config.rms_norm_eps),
        attention_(std::move(attention)),
        feed_forward_(std::move(feed_forward)) {}

  Ops& ops_;
  TensorGroup& group_;
  Workspace& space_;
  float norm_eps_;
  std::unique_ptr<AttentionBlock> attention_;
  std::unique_ptr<FeedForward> feed_forward_;
  DeviceTensor attention_norm_;  // [hidden] f32
  DeviceTensor mlp_norm_;        // [hidden] f32
};

}  // namespace troupe
