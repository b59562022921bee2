#pragma once

#include "models/layers/feed_forward.hpp"
#include "models/layers/layer_context.hpp"
#include "models/layers/moe/router.hpp"

namespace troupe {

/// A mixture of experts whose ranks exchange rows on the devices alone (DeviceExpertExchange): a
/// pass does not wait for the host, and can be captured. The tensor ranks divide the tokens; each
/// routes its own. The outputs of a rank's experts for a token are added there, in the order of
/// choice, and sent as one rounded row; the owner adds the ranks' rows. So the sums differ from
/// TensorParallelMoe's by that rounding.
class DeviceDispatchMoe final : public FeedForward {
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
  explicit DeviceDispatchMoe(const LayerContext& context)
      : ops_(context.ops),
        group_(context.tensor),
        experts_(context.experts.share().experts),
        exchange_(*context.experts.device_exchange()),
        space_(context.space) {}

  Tensor compute() const;

  Ops& ops_;
  TensorGroup& group_;
  Slice experts_;
  DeviceExpertExchange& exchange_;
  Workspace& space_;
  std::unique_ptr<Router> router_;
  std::unique_ptr<GroupedLinear> gate_up_;  // [local experts] x [2 inner, hidden]
  std::unique_ptr<GroupedLinear> down_;     // [local experts] x [hidden, inner]
  DeviceTensor rows_per_expert_;            // [local experts] i64
};

}  // namespace troupe
