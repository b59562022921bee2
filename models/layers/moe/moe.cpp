#include "models/layers/moe/moe.hpp"

#include "models/layers/moe/device_dispatch_moe.hpp"
#include "models/layers/moe/host_dispatch_moe.hpp"
#include "models/layers/moe/shared_expert_moe.hpp"
#include "models/layers/moe/tensor_parallel_moe.hpp"

namespace troupe {

Result<std::unique_ptr<FeedForward>> make_moe(const LayerContext& context, std::int64_t layer) {
  const ExpertGroup& experts = context.experts;
  TROUPE_TRY(auto routed,
             experts.device_exchange() != nullptr ? DeviceDispatchMoe::create(context, layer)
             : experts.host_exchange() != nullptr ? HostDispatchMoe::create(context, layer)
                                                  : TensorParallelMoe::create(context, layer));
  if (context.config.moe->shared_intermediate_size == 0) return routed;
  return SharedExpertMoe::create(context, layer, std::move(routed));
}

}  // namespace troupe
