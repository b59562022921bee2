#pragma once

#include "models/layers/feed_forward.hpp"
#include "models/layers/layer_context.hpp"

namespace troupe {

/// Routed experts and, beside them, an MLP that every token takes, whose output is added to theirs
/// (Dai et al. 2024, DeepSeekMoE, section 3.2), in some models times the sigmoid of a projection of
/// the token.
class SharedExpertMoe final : public FeedForward {
 public:
  /// `routed`: the layer's routed experts.
  static Result<std::unique_ptr<FeedForward>> create(const LayerContext& context,
                                                     std::int64_t layer,
                                                     std::unique_ptr<FeedForward> routed);
  bool reads_all_tokens() const override { return true; }
  Result<PendingSum> forward(const Tensor& x, const Tensor& out) const override;
  Tensor rows_per_expert() const override { return routed_->rows_per_expert(); }
  std::size_t bytes() const override {
    return routed_->bytes() + shared_->bytes() + gate_->bytes();
  }

 private:
  SharedExpertMoe(const LayerContext& context, std::unique_ptr<FeedForward> routed)
      : ops_(context.ops),
        group_(context.tensor),
        space_(context.space),
        routed_(std::move(routed)) {}

  Ops& ops_;
  TensorGroup& group_;
  Workspace& space_;
  std::unique_ptr<FeedForward> routed_;
  std::unique_ptr<FeedForward> shared_;
  DeviceTensor gate_;  // [hidden] f32, or empty: the shared MLP's output counts whole
};

}  // namespace troupe
