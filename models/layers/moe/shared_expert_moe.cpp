#include "models/layers/moe/shared_expert_moe.hpp"

#include "models/layers/dense_mlp.hpp"

namespace troupe {

Result<std::unique_ptr<FeedForward>> SharedExpertMoe::create(const LayerContext& context,
                                                             std::int64_t layer,
                                                             std::unique_ptr<FeedForward> routed) {
  using enum Parameter;
  std::unique_ptr<SharedExpertMoe> moe(new SharedExpertMoe(context, std::move(routed)));
  TROUPE_TRY(moe->shared_,
             DenseMlp::create(context, layer,
                              {.gate = shared_gate, .up = shared_up, .down = shared_down}));
  return std::unique_ptr<FeedForward>(std::move(moe));
}

Result<void> SharedExpertMoe::forward(const Tensor& x, const Tensor& out) const {
  TROUPE_CHECK(routed_->forward(x, out));
  if (x[0] == 0) return {};
  TROUPE_CHECK(group_.complete(out));
  const Tensor shared = space_.shared_rows->rows(0, out[0]);
  TROUPE_CHECK(shared_->forward(x, shared));
  TROUPE_CHECK(group_.complete(shared));
  ops_.add(out, shared);
  return {};
}

}  // namespace troupe
