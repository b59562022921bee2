#include "models/layers/dense_mlp.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

Result<std::unique_ptr<FeedForward>> DenseMlp::create(const LayerContext& context,
                                                      std::int64_t layer,
                                                      const MlpParameters& parameters) {
  std::unique_ptr<DenseMlp> mlp(new DenseMlp(context));
  const bool gated = is_gated(context.config.activation);
  TROUPE_TRY(mlp->gate_up_, gated ? context.weights.linear({parameters.gate, parameters.up}, layer)
                                  : context.weights.linear({parameters.up}, layer));
  TROUPE_TRY(mlp->down_, context.weights.linear({parameters.down}, layer));
  if (parameters.with_biases) {
    using enum Parameter;
    TROUPE_TRY(mlp->gate_up_bias_, gated ? context.weights.vector({gate_bias, up_bias}, layer)
                                         : context.weights.vector({up_bias}, layer));
    TROUPE_TRY(mlp->down_bias_, context.weights.vector(down_bias, layer));
  }
  return std::unique_ptr<FeedForward>(std::move(mlp));
}

Result<PendingSum> DenseMlp::forward(const Tensor& x, const Tensor& out) const {
  const std::int64_t tokens = x[0];
  PendingSum sum;
  if (dense_ != nullptr) {
    TROUPE_CHECK(dense_->sum_over_ranks(
        x, out, [&](const Tensor& rows, const Tensor& sums) { compute(rows, sums); }));
  } else if (tokens > 0) {
    TROUPE_TRY(sum,
               group_.defer_all_reduce_by_parts(tokens, out, [&](Slice part, const Tensor& sums) {
                 compute(x.rows(part.begin, part.count), sums);
               }));
  }
  if (tokens == 0 || down_bias_->empty()) return sum;
  TROUPE_CHECK(group_.complete(std::move(sum), out));
  ops_.dense().add_bias(out, down_bias_);
  return PendingSum();
}

void DenseMlp::compute(const Tensor& x, const Tensor& sums) const {
  const std::int64_t at_once = ops_.rows_at_once();
  for (std::int64_t done = 0; done < x[0]; done += at_once) {
    const std::int64_t rows = std::min(at_once, x[0] - done);
    const Tensor gate_up = first_rows(space_.gate_up, rows, gate_up_->out_features());
    const Tensor activated = first_rows(space_.activated, rows, down_->in_features());
    project(x.rows(done, rows), gate_up, activated);
    ops_.dense().linear(*down_, activated, sums.rows(done, rows));
  }
}

const Linear* DenseMlp::only_reader(std::int64_t tokens) const {
  const bool at_once = dense_ == nullptr && tokens <= ops_.rows_at_once();
  return at_once ? gate_up_.get() : nullptr;
}

SharedMlp DenseMlp::shared_mlp() const {
  const bool has_bias = !gate_up_bias_->empty() || !down_bias_->empty();
  if (dense_ != nullptr || has_bias || activation_ != Activation::silu_gated) return {};
  return {gate_up_.get(), down_.get()};
}

void DenseMlp::project(const Tensor& x, const Tensor& gate_up, const Tensor& activated) const {
  if (gate_up_bias_->empty() && activation_ == Activation::silu_gated) {
    ops_.dense().linear_gate_up(*gate_up_, x, gate_up, activated, down_.get());
    return;
  }
  ops_.dense().linear(*gate_up_, x, gate_up);
  if (!gate_up_bias_->empty()) ops_.dense().add_bias(gate_up, gate_up_bias_);
  ops_.dense().activate(gate_up, activation_, activated);
}

std::size_t DenseMlp::bytes() const {
  return gate_up_->bytes() + down_->bytes() + gate_up_bias_->bytes() + down_bias_->bytes();
}

}  // namespace troupe
