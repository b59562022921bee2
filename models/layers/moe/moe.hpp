#pragma once

#include "models/layers/feed_forward.hpp"
#include "models/layers/layer_context.hpp"

namespace troupe {

/// A layer's mixture of experts as ExpertGroup says: DeviceDispatchMoe, HostDispatchMoe or
/// TensorParallelMoe; with SharedExpertMoe around it where the model has an MLP for every token.
Result<std::unique_ptr<FeedForward>> make_moe(const LayerContext& context, std::int64_t layer);

}  // namespace troupe
