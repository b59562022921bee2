#pragma once

#include "models/layers/moe/routed_experts.hpp"

namespace troupe {

/// A mixture of experts with the results of TensorParallelMoe, but whole experts distributed over
/// ranks (expert parallelism, Lepikhin et al. 2021, GShard). The tensor ranks divide the tokens;
/// each routes its own, sends them to their experts' ranks (ExpertExchange) and gets f32 rows back.
/// If more ranks than needed split each expert's inner size, the parts' rows are added in tree
/// order; then a token's top_k rows in the order of choice. So the bits are those of
/// TensorParallelMoe.
class HostDispatchMoe final : public RoutedExperts {
 public:
  HostDispatchMoe(const LayerContext& context, ExpertWeights weights)
      : RoutedExperts(context, std::move(weights)), exchange_(*context.experts.host_exchange()) {}
  bool reads_all_tokens() const override { return false; }
  Result<PendingSum> forward(const Tensor& x, const Tensor& out) const override;

 private:
  Result<void> route(const Tensor& x) const;
  Result<void> send_to_experts(const Tensor& x, const Tensor& received) const;
  void compute(const Tensor& received, const Tensor& results) const;
  Result<void> bring_back(const Tensor& results, const Tensor& out) const;

  ExpertExchange& exchange_;
};

}  // namespace troupe
