#include "models/layers/moe/moe.hpp"

#include <utility>

#include "models/layers/moe/device_dispatch_moe.hpp"
#include "models/layers/moe/host_dispatch_moe.hpp"
#include "models/layers/moe/shared_expert_moe.hpp"
#include "models/layers/moe/tensor_parallel_moe.hpp"

namespace troupe {

Result<std::unique_ptr<FeedForward>> make_moe(const LayerContext& context, std::int64_t layer) {
  const ExpertGroup& experts = context.experts;
  TROUPE_TRY(ExpertWeights weights, ExpertWeights::create(context, layer));
  std::unique_ptr<FeedForward> routed;
  const TensorParallelMoe* tensor_parallel = nullptr;
  if (experts.device_exchange() != nullptr) {
    routed = std::make_unique<DeviceDispatchMoe>(context, std::move(weights));
  } else if (experts.host_exchange() != nullptr) {
    routed = std::make_unique<HostDispatchMoe>(context, std::move(weights));
  } else {
    auto moe = std::make_unique<TensorParallelMoe>(context, std::move(weights));
    tensor_parallel = moe.get();
    routed = std::move(moe);
  }
  if (context.config.moe->shared_intermediate_size == 0) return routed;
  return SharedExpertMoe::create(context, layer, std::move(routed), tensor_parallel);
}

}  // namespace troupe
