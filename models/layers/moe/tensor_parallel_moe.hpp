#pragma once

#include "models/layers/moe/routed_experts.hpp"

namespace troupe {

/// A mixture of experts: a router chooses top_k of them per token, whose outputs are added with the
/// router's weights. The tensor ranks together hold all experts: each a part of every expert, or
/// each a share of them; the router is replicated.
///
/// With exact sums (TensorGroup) each rank has a part of every expert, and a token's top_k rows are
/// summed over ranks before they are combined in the order of choice, so that each expert's sum is
/// the same tree at every tensor size. Otherwise each rank combines its rows first, and one row per
/// token is summed.
class TensorParallelMoe final : public RoutedExperts {
 public:
  TensorParallelMoe(const LayerContext& context, ExpertWeights weights)
      : RoutedExperts(context, std::move(weights)), experts_(context.experts.share().experts) {}
  bool reads_all_tokens() const override { return true; }
  /// True if forward_with_shared may be called for a pass of this many tokens.
  bool takes(const SharedMlp& shared, std::int64_t tokens) const;
  /// forward(), and adds the output of `shared`, this rank's part of an MLP.
  Result<PendingSum> forward_with_shared(const SharedMlp& shared, const Tensor& x,
                                         const Tensor& out) const;
  Result<PendingSum> forward(const Tensor& x, const Tensor& out) const override {
    return forward_with_shared({}, x, out);
  }

 private:
  /// True if the ranks' rows are combined before they are summed.
  bool combines_first() const { return group_.size() == 1 || !group_.sums_exactly(); }
  /// Adds the output biases to this rank's rows of the pass.
  void add_bias_of_own_rows(const ExpertChoices& choices, const Tensor& out) const;

  Slice experts_;
};

}  // namespace troupe
