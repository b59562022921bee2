#pragma once

#include "models/layers/feed_forward.hpp"
#include "models/layers/layer_context.hpp"
#include "models/layers/moe/router.hpp"

namespace troupe {

/// A mixture of experts: a router chooses top_k of them per token, whose outputs are added with the
/// router's weights. The tensor ranks together hold all experts: each a part of every expert, or
/// each a share of them; the router is replicated.
///
/// With exact sums (TensorGroup) each rank has a part of every expert, and a token's top_k rows are
/// summed over ranks before they are combined in the order of choice, so that each expert's sum is
/// the same tree at every tensor size. Otherwise each rank combines its rows first, and one row per
/// token is summed.
class TensorParallelMoe final : public FeedForward {
 public:
  static Result<std::unique_ptr<FeedForward>> create(const LayerContext& context,
                                                     std::int64_t layer);
  bool reads_all_tokens() const override { return true; }
  Result<PendingSum> forward(const Tensor& x, const Tensor& out) const override;
  Tensor rows_per_expert() const override { return rows_per_expert_; }
  std::size_t bytes() const override {
    return router_->bytes() + gate_up_->bytes() + down_->bytes();
  }

 private:
  explicit TensorParallelMoe(const LayerContext& context)
      : ops_(context.ops),
        group_(context.tensor),
        experts_(context.experts.share().experts),
        space_(context.space) {}

  Ops& ops_;
  TensorGroup& group_;
  Slice experts_;
  Workspace& space_;
  std::unique_ptr<Router> router_;
  std::unique_ptr<GroupedLinear> gate_up_;  // [local experts] x [2 inner, hidden]
  std::unique_ptr<GroupedLinear> down_;     // [local experts] x [hidden, inner]
  DeviceTensor rows_per_expert_;            // [local experts] i64
};

}  // namespace troupe
