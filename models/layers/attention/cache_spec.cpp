#include "models/layers/attention/cache_spec.hpp"

#include <algorithm>

namespace troupe {

namespace {

/// The layers of one spec, and how many groups they are divided into.
struct LayersOfSpec {
  CacheSpec spec;
  std::int64_t layers = 0;
  std::int64_t groups = 1;
};

constexpr std::int64_t groups_of(std::int64_t layers, std::int64_t size) {
  return (layers + size - 1) / size;
}

/// Returns the number of layers that a group has at most. A block takes memory for so many layers
/// whichever group holds it: fewer layers waste less of it, but mean more groups, each of which is
/// counted like a hundredth of the memory.
std::int64_t layers_per_group(const std::vector<LayersOfSpec>& specs) {
  std::int64_t largest = 1;
  for (const LayersOfSpec& one : specs) largest = std::max(largest, one.layers);
  const auto cost = [&](std::int64_t size) {
    std::int64_t groups = 0;
    for (const LayersOfSpec& one : specs) groups += groups_of(one.layers, size);
    return groups * size * (100 + groups);
  };
  std::int64_t best = largest;
  for (std::int64_t size = largest; size > 0; --size) {
    if (cost(size) < cost(best)) best = size;
  }
  return best;
}

/// The distinct specs in order of first occurrence.
std::vector<LayersOfSpec> divide(const ModelConfig& config) {
  std::vector<LayersOfSpec> specs;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const CacheSpec spec = cache_spec_of(config, layer);
    auto found = std::ranges::find(specs, spec, &LayersOfSpec::spec);
    if (found == specs.end()) found = specs.insert(specs.end(), {spec});
    ++found->layers;
  }
  const std::int64_t size = layers_per_group(specs);
  for (LayersOfSpec& one : specs) one.groups = groups_of(one.layers, size);
  return specs;
}

}  // namespace

CacheSpec cache_spec_of(const ModelConfig& config, std::int64_t layer) {
  if (config.latent) return {CacheSpec::Kind::latent, 0};
  const std::int64_t window = config.window_of(layer);
  return window == 0 ? CacheSpec() : CacheSpec{CacheSpec::Kind::window, window};
}

std::vector<CacheSpec> cache_groups(const ModelConfig& config) {
  std::vector<CacheSpec> groups;
  for (const LayersOfSpec& one : divide(config)) {
    groups.insert(groups.end(), static_cast<std::size_t>(one.groups), one.spec);
  }
  return groups;
}

std::vector<std::size_t> cache_groups_of_layers(const ModelConfig& config) {
  const std::vector<LayersOfSpec> specs = divide(config);
  std::vector<std::int64_t> before(specs.size(), 0);  // layers of each spec
  std::vector<std::size_t> groups;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const CacheSpec spec = cache_spec_of(config, layer);
    std::int64_t first = 0;
    std::size_t i = 0;
    for (; specs[i].spec != spec; ++i) first += specs[i].groups;
    groups.push_back(static_cast<std::size_t>(first + before[i]++ % specs[i].groups));
  }
  return groups;
}

}  // namespace troupe
