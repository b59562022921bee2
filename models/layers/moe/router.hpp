#pragma once

#include "models/layers/layer_context.hpp"

namespace troupe {

/// Chooses a token's experts (Shazeer et al. 2017; with groups and a bias that only balances the
/// choice, DeepSeek-AI 2024, DeepSeek-V3, section 2.1.2). Replicated on all ranks.
class Router {
 public:
  static Result<std::unique_ptr<Router>> create(const LayerContext& context, std::int64_t layer);

  std::int64_t top_k() const { return options_.top_k; }
  std::int64_t experts() const { return weight_->out_features(); }
  /// For the rows of x [tokens, hidden]: ids [tokens, top_k] i32, weights [tokens, top_k] f32, best
  /// first.
  void choose(const Tensor& x, const Tensor& ids, const Tensor& weights) const;
  /// Like MoeOps::route_tokens, for the rows of x.
  void choose(const Tensor& x, const ExpertChoices& choices, const ExpertBatch& batch,
              const Tensor& counts) const;
  std::size_t bytes() const { return weight_->bytes() + bias_->bytes() + logit_bias_->bytes(); }

 private:
  /// The logits of the rows of x [tokens, experts], in the workspace.
  Tensor logits_of(const Tensor& x) const;

  explicit Router(const LayerContext& context) : ops_(context.ops), space_(context.space) {}

  Ops& ops_;
  Workspace& space_;
  RouterOptions options_;
  std::unique_ptr<Linear> weight_;  // [experts, hidden]
  DeviceTensor bias_;               // [experts] f32, or empty
  DeviceTensor logit_bias_;         // [experts] f32, or empty
};

}  // namespace troupe
