#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "models/layers/attention/cache_spec.hpp"
#include "models/ops/kv_residual.hpp"
#include "parallel/sharding/sharding.hpp"

namespace troupe {

/// Where a layer's KV is: the layer is the `tensor`-th of its group on its stage.
struct StageCache {
  std::size_t group = 0;   ///< index in cache_groups; selects the block tables
  std::size_t tensor = 0;  ///< index of the rank's cache tensor
  bool operator==(const StageCache&) const = default;
};

/// Returns the caches of `layers`, which belong to one stage.
std::vector<StageCache> stage_caches(const ModelConfig& config, Slice layers);

/// The number of cache tensors that they need.
std::int64_t cache_tensors(const std::vector<StageCache>& caches);

/// The residual of each cache tensor of a stage, whose first layer is `first_layer`: that of the
/// layers that have the tensor in turn, which must have the same.
std::vector<KvResidual> cache_residuals(const std::vector<StageCache>& caches,
                                        std::int64_t first_layer, const KvResiduals& residuals);

}  // namespace troupe
