#include "models/layers/moe.hpp"

#include "models/layers/expert_parallel_moe.hpp"
#include "models/layers/moe_block.hpp"
#include "models/layers/shared_expert_moe.hpp"

namespace troupe {

Result<std::unique_ptr<FeedForward>> make_moe(const LayerContext& context, std::int64_t layer) {
  TROUPE_TRY(auto routed, context.experts != nullptr ? ExpertParallelMoe::create(context, layer)
                                                     : MoeBlock::create(context, layer));
  if (context.config.moe->shared_intermediate_size == 0) return routed;
  return SharedExpertMoe::create(context, layer, std::move(routed));
}

}  // namespace troupe
