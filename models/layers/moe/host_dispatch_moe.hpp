#pragma once

#include "models/layers/feed_forward.hpp"
#include "models/layers/layer_context.hpp"
#include "models/layers/moe/router.hpp"

namespace troupe {

/// A mixture of experts with the results of TensorParallelMoe, but whole experts distributed over
/// ranks (expert parallelism, Lepikhin et al. 2021, GShard). The tensor ranks divide the tokens;
/// each routes its own, sends them to their experts' ranks (ExpertExchange) and gets f32 rows back.
/// If more ranks than needed split each expert's inner size, the parts' rows are added in tree
/// order; then a token's top_k rows in the order of choice. So the bits are those of
/// TensorParallelMoe.
class HostDispatchMoe final : public FeedForward {
 public:
  static Result<std::unique_ptr<FeedForward>> create(const LayerContext& context,
                                                     std::int64_t layer);
  bool reads_all_tokens() const override { return false; }
  Result<PendingSum> forward(const Tensor& x, const Tensor& out) const override;
  Tensor rows_per_expert() const override { return rows_per_expert_; }
  std::size_t bytes() const override {
    return router_->bytes() + gate_up_->bytes() + down_->bytes();
  }

 private:
  explicit HostDispatchMoe(const LayerContext& context)
      : ops_(context.ops),
        group_(context.tensor),
        exchange_(*context.experts.host_exchange()),
        space_(context.space) {}

  Result<void> route(const Tensor& x) const;
  Result<void> send_to_experts(const Tensor& x, const Tensor& received) const;
  void compute(const Tensor& received, const Tensor& results) const;
  Result<void> bring_back(const Tensor& results, const Tensor& out) const;

  Ops& ops_;
  TensorGroup& group_;
  ExpertExchange& exchange_;
  Workspace& space_;
  std::unique_ptr<Router> router_;
  std::unique_ptr<GroupedLinear> gate_up_;  // [local experts] x [2 inner, hidden]
  std::unique_ptr<GroupedLinear> down_;     // [local experts] x [hidden, inner]
  DeviceTensor rows_per_expert_;            // [local experts] i64
};

}  // namespace troupe
