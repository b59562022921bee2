#include "models/layers/moe/shared_expert_moe.hpp"

#include <utility>

#include "models/layers/dense_mlp.hpp"

namespace troupe {

Result<std::unique_ptr<FeedForward>> SharedExpertMoe::create(
    const LayerContext& context, std::int64_t layer, std::unique_ptr<FeedForward> routed,
    const TensorParallelMoe* tensor_parallel) {
  using enum Parameter;
  std::unique_ptr<SharedExpertMoe> moe(
      new SharedExpertMoe(context, std::move(routed), tensor_parallel));
  TROUPE_TRY(moe->shared_,
             DenseMlp::create(context, layer,
                              {.gate = shared_gate, .up = shared_up, .down = shared_down}));
  if (context.config.moe->gated_shared_expert) {
    TROUPE_TRY(moe->gate_, context.weights.vector(shared_router, layer));
  }
  return std::unique_ptr<FeedForward>(std::move(moe));
}

SharedMlp SharedExpertMoe::taken_with_experts(std::int64_t tokens) const {
  if (tensor_parallel_ == nullptr || tokens == 0 || !gate_->empty()) return {};
  const SharedMlp shared = shared_->shared_mlp();
  return tensor_parallel_->takes(shared, tokens) ? shared : SharedMlp();
}

Result<PendingSum> SharedExpertMoe::forward(const Tensor& x, const Tensor& out) const {
  if (const SharedMlp shared = taken_with_experts(x[0]); shared.down != nullptr) {
    return tensor_parallel_->forward_with_shared(shared, x, out);
  }
  TROUPE_TRY(PendingSum routed_sum, routed_->forward(x, out));
  TROUPE_CHECK(group_.complete(std::move(routed_sum), out));
  const Tensor shared = space_.shared_rows->rows(0, out[0]);
  TROUPE_TRY(PendingSum shared_sum, shared_->forward(x, shared));
  if (x[0] == 0) return PendingSum();
  TROUPE_CHECK(group_.complete(std::move(shared_sum), shared));
  if (!gate_->empty()) {
    const Slice own = group_.own_slice(x[0]);
    ops_.dense().gate_rows(shared, x.rows(own.begin, own.count), gate_);
  }
  ops_.dense().add(out, shared);
  return PendingSum();
}

}  // namespace troupe
