#pragma once

#include "models/layers/feed_forward.hpp"
#include "models/layers/layer_context.hpp"
#include "models/layers/moe/tensor_parallel_moe.hpp"

namespace troupe {

/// Routed experts and, beside them, an MLP that every token takes, whose output is added to theirs
/// (Dai et al. 2024, DeepSeekMoE, section 3.2), in some models times the sigmoid of a projection of
/// the token.
class SharedExpertMoe final : public FeedForward {
 public:
  /// `routed`: the layer's routed experts; `tensor_parallel`: the same, if it is one, else null.
  static Result<std::unique_ptr<FeedForward>> create(const LayerContext& context,
                                                     std::int64_t layer,
                                                     std::unique_ptr<FeedForward> routed,
                                                     const TensorParallelMoe* tensor_parallel);
  bool reads_all_tokens() const override { return true; }
  Result<PendingSum> forward(const Tensor& x, const Tensor& out) const override;
  Tensor rows_per_expert() const override { return routed_->rows_per_expert(); }
  std::size_t bytes() const override {
    return routed_->bytes() + shared_->bytes() + gate_->bytes();
  }

 private:
  SharedExpertMoe(const LayerContext& context, std::unique_ptr<FeedForward> routed,
                  const TensorParallelMoe* tensor_parallel)
      : ops_(context.ops),
        group_(context.tensor),
        space_(context.space),
        routed_(std::move(routed)),
        tensor_parallel_(tensor_parallel) {}

  /// The shared MLP, if its output counts whole and the routed experts take it in a pass of this
  /// many tokens; else none.
  SharedMlp taken_with_experts(std::int64_t tokens) const;

  Ops& ops_;
  TensorGroup& group_;
  Workspace& space_;
  std::unique_ptr<FeedForward> routed_;
  const TensorParallelMoe* tensor_parallel_;
  std::unique_ptr<FeedForward> shared_;
  DeviceTensor gate_;  // [hidden] f32, or empty: the shared MLP's output counts whole
};

}  // namespace troupe
