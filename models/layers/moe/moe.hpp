#pragma once

#include "models/layers/feed_forward.hpp"
#include "models/layers/layer_context.hpp"

namespace troupe {

/// Makes a layer's mixture of experts as chosen by ExpertGroup: DeviceDispatchMoe, HostDispatchMoe
/// or TensorParallelMoe; wrapped in SharedExpertMoe if the model has an MLP for every token.
Result<std::unique_ptr<FeedForward>> make_moe(const LayerContext& context, std::int64_t layer);

}  // namespace troupe
