#include "models/layers/attention/cache_spec.hpp"

#include <algorithm>

namespace troupe {

CacheSpec cache_spec_of(const ModelConfig& config, std::int64_t layer) {
  if (config.latent) return {CacheSpec::Kind::latent, 0};
  const std::int64_t window = config.window_of(layer);
  return window == 0 ? CacheSpec() : CacheSpec{CacheSpec::Kind::window, window};
}

std::vector<CacheSpec> cache_groups(const ModelConfig& config) {
  std::vector<CacheSpec> groups;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const CacheSpec spec = cache_spec_of(config, layer);
    if (std::ranges::find(groups, spec) == groups.end()) groups.push_back(spec);
  }
  return groups;
}

std::size_t cache_group_of(const ModelConfig& config, std::int64_t layer) {
  const std::vector<CacheSpec> groups = cache_groups(config);
  const auto found = std::ranges::find(groups, cache_spec_of(config, layer));
  return static_cast<std::size_t>(found - groups.begin());
}

}  // namespace troupe
