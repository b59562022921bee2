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
  DeviceTensor rows_per_expert;            ///< [local experts] i64
};

/// Routed experts, however tokens reach the ranks that hold them.
class RoutedExperts : public FeedForward {
 public:
  Tensor rows_per_expert() const final { return weights_.rows_per_expert; }
  std::size_t bytes() const final {
    return weights_.router->bytes() + weights_.gate_up->bytes() + weights_.down->bytes();
  }

 protected:
  RoutedExperts(const LayerContext& context, ExpertWeights weights)
      : ops_(context.ops),
        group_(context.tensor),
        space_(context.space),
        weights_(std::move(weights)) {}

  const Router& router() const { return *weights_.router; }
  const GroupedLinear& gate_up_weight() const { return *weights_.gate_up; }
  const GroupedLinear& down_weight() const { return *weights_.down; }

  Ops& ops_;
  TensorGroup& group_;
  Workspace& space_;

 private:
  ExpertWeights weights_;
};

}  // namespace troupe
