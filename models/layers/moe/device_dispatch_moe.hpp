#pragma once

#include "models/layers/moe/routed_experts.hpp"

namespace troupe {

/// A mixture of experts whose ranks exchange rows on the devices alone (DeviceExpertExchange): a
/// pass does not wait for the host, and can be captured. The tensor ranks divide the tokens; each
/// routes its own. The outputs of a rank's experts for a token are added there, in the order of
/// choice, and sent as one rounded row; the owner adds the ranks' rows. So the sums differ from
/// TensorParallelMoe's by that rounding.
class DeviceDispatchMoe final : public RoutedExperts {
 public:
  DeviceDispatchMoe(const LayerContext& context, ExpertWeights weights)
      : RoutedExperts(context, std::move(weights)),
        experts_(context.experts.share().experts),
        exchange_(*context.experts.device_exchange()) {}
  bool reads_all_tokens() const override { return false; }
  Result<PendingSum> forward(const Tensor& x, const Tensor& out) const override;

 private:
  Tensor compute(bool are_codes) const;

  Slice experts_;
  DeviceExpertExchange& exchange_;
};

}  // namespace troupe
