#include "models/layers/moe.hpp"

#include "models/layers/expert_parallel_moe.hpp"
#include "models/layers/moe_block.hpp"

namespace troupe {

Result<std::unique_ptr<FeedForward>> make_moe(const LayerContext& context, std::int64_t layer) {
  return context.experts != nullptr ? ExpertParallelMoe::create(context, layer)
                                    : MoeBlock::create(context, layer);
}

}  // namespace troupe
