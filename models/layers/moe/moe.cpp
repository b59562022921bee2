#include "models/layers/moe/moe.hpp"

#include "models/layers/moe/expert_parallel_moe.hpp"
#include "models/layers/moe/moe_block.hpp"
#include "models/layers/moe/row_exchange_moe.hpp"
#include "models/layers/moe/shared_expert_moe.hpp"

namespace troupe {

Result<std::unique_ptr<FeedForward>> make_moe(const LayerContext& context, std::int64_t layer) {
  const ExpertGroup& experts = context.experts;
  TROUPE_TRY(auto routed, experts.rows() != nullptr    ? RowExchangeMoe::create(context, layer)
                          : experts.pairs() != nullptr ? ExpertParallelMoe::create(context, layer)
                                                       : MoeBlock::create(context, layer));
  if (context.config.moe->shared_intermediate_size == 0) return routed;
  return SharedExpertMoe::create(context, layer, std::move(routed));
}

}  // namespace troupe
