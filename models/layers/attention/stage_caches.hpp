#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "models/layers/attention/cache_spec.hpp"
#include "parallel/sharding/sharding.hpp"

namespace troupe {

/// Where a layer's keys and values are: it is the `tensor`-th layer of its group on its stage.
struct StageCache {
  std::size_t group = 0;   ///< index in cache_groups: whose block tables it reads
  std::size_t tensor = 0;  ///< which of the rank's cache tensors
  bool operator==(const StageCache&) const = default;
};

/// Of each of `layers`, those of one stage.
std::vector<StageCache> stage_caches(const ModelConfig& config, Slice layers);

/// How many cache tensors they need.
std::int64_t cache_tensors(const std::vector<StageCache>& caches);

}  // namespace troupe
