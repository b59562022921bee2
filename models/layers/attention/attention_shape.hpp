#pragma once

#include "models/config/model_config.hpp"
#include "models/ops/ops.hpp"
#include "parallel/sharding/sharding.hpp"

namespace troupe {

/// A rank's share of layer `layer`'s attention: its query heads and the KV heads they read. The
/// layers of a model differ only in their window, so their caches have one layout. Errors: sizes
/// that do not divide.
Result<AttentionShape> attention_shape(const ModelConfig& config, std::int64_t layer,
                                       ShardOf shard);

}  // namespace troupe
