#include "models/layers/dense_mlp.hpp"

namespace troupe {

Result<std::unique_ptr<FeedForward>> DenseMlp::create(const LayerContext& context,
                                                      std::int64_t layer,
                                                      const MlpParameters& parameters) {
  std::unique_ptr<DenseMlp> mlp(new DenseMlp(context));
  TROUPE_TRY(mlp->gate_up_, context.weights.linear({parameters.gate, parameters.up}, layer));
  TROUPE_TRY(mlp->down_, context.weights.linear({parameters.down}, layer));
  return std::unique_ptr<FeedForward>(std::move(mlp));
}

Result<void> DenseMlp::forward(const Tensor& x, const Tensor& out) const {
  const std::int64_t tokens = x[0];
  if (tokens == 0) return {};
  const std::int64_t inner = down_->in_features();
  const Tensor gate_up = first_rows(space_.gate_up, tokens, 2 * inner);
  const Tensor activated = first_rows(space_.activated, tokens, inner);
  ops_.linear(*gate_up_, x, gate_up);
  ops_.silu_mul(gate_up, activated);
  return group_.sum_to_owners(tokens, 1, out,
                              [&](const Tensor& sums) { ops_.linear(*down_, activated, sums); });
}

}  // namespace troupe
