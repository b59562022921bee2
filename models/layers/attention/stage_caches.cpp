#include "models/layers/attention/stage_caches.hpp"

#include <algorithm>

namespace troupe {

std::vector<StageCache> stage_caches(const ModelConfig& config, Slice layers) {
  std::vector<std::size_t> layers_before(cache_groups(config).size(), 0);
  const std::vector<std::size_t> groups = cache_groups_of_layers(config);
  std::vector<StageCache> caches;
  for (std::int64_t layer = layers.begin; layer < layers.end(); ++layer) {
    const std::size_t group = groups[static_cast<std::size_t>(layer)];
    caches.push_back({group, layers_before[group]++});
  }
  return caches;
}

std::vector<KvResidual> cache_residuals(const std::vector<StageCache>& caches,
                                        std::int64_t first_layer, const KvResiduals& residuals) {
  std::vector<KvResidual> all(static_cast<std::size_t>(cache_tensors(caches)));
  for (std::size_t i = caches.size(); i-- > 0;) {
    all[caches[i].tensor] = residuals.of(first_layer + static_cast<std::int64_t>(i));
  }
  return all;
}

std::int64_t cache_tensors(const std::vector<StageCache>& caches) {
  std::size_t tensors = 0;
  for (const StageCache& cache : caches) tensors = std::max(tensors, cache.tensor + 1);
  return static_cast<std::int64_t>(tensors);
}

}  // namespace troupe
