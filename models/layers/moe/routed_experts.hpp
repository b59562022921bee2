#pragma once

#include <memory>
#include <utility>

#include "models/layers/feed_forward.hpp"
#include "models/layers/layer_context.hpp"
#include "models/layers/moe/router.hpp"

namespace troupe {

/// A layer's router and the experts that this rank holds, or its part of them.
struct ExpertWeights {
  static Result<ExpertWeights> create(const LayerContext& context, std::int64_t layer);

  std::unique_ptr<Router> router;
  std::unique_ptr<GroupedLinear> gate_up;  ///< [local experts] x [2 inner, hidden]
  std::unique_ptr<GroupedLinear> down;     ///< [local experts] x [hidden, inner]
  DeviceTensor bias;                       ///< of gate_up: [local experts, 2 inner] f32, or empty
  DeviceTensor output_bias;                ///< of down: [all experts, hidden] f32, or empty
  DeviceTensor rows_per_expert;            ///< [local experts] i64

  std::size_t bytes() const {
    return router->bytes() + gate_up->bytes() + down->bytes() + bias->bytes() +
           output_bias->bytes();
  }
};

/// Routed experts, however tokens reach the ranks that hold them.
class RoutedExperts : public FeedForward {
 public:
  Tensor rows_per_expert() const final { return weights_.rows_per_expert; }
  std::size_t bytes() const final { return weights_.bytes(); }

 protected:
  RoutedExperts(const LayerContext& context, ExpertWeights weights)
      : ops_(context.ops),
        group_(context.tensor),
        space_(context.space),
        activation_(context.config.activation),
        weights_(std::move(weights)) {}

  const Router& router() const { return *weights_.router; }
  const GroupedLinear& gate_up_weight() const { return *weights_.gate_up; }
  const GroupedLinear& down_weight() const { return *weights_.down; }

  /// activated [rows, inner], sorted by expert: the input of `down`. x and `gate_up`, which is
  /// scratch, are those of MoeOps::grouped_gate_up.
  void activate(const Tensor& x, const ExpertBatch& batch, std::int64_t top_k,
                const Tensor& gate_up, const Tensor& activated) const;
  /// MoeOps::expert_mlp, without the output bias.
  void compute(const Tensor& x, const ExpertChoices& choices, const ExpertBatch& batch,
               const ExpertScratch& scratch, const Tensor& out, const SharedMlp& shared) const;
  bool has_output_bias() const { return !weights_.output_bias->empty(); }
  /// Adds the biases of `down` to the combined outputs of tokens, if there are any. ids and weights
  /// [tokens, top_k] are the tokens' choices among all experts.
  void add_output_bias(const Tensor& ids, const Tensor& weights, const Tensor& out) const;

  /// True if the experts are what MoeOps::expert_mlp computes.
  bool are_plain() const { return weights_.bias->empty() && activation_ == Activation::silu_gated; }

  Ops& ops_;
  TensorGroup& group_;
  Workspace& space_;

 private:
  Activation activation_;
  ExpertWeights weights_;
};

}  // namespace troupe
