#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "models/config/model_config.hpp"

namespace troupe {

/// What a layer's KV cache holds of a sequence. Layers with equal specs form a cache group: they
/// share one block table.
struct CacheSpec {
  enum class Kind {
    full,    ///< keys and values of every position
    window,  ///< keys and values of the last `window` positions
    latent,  ///< one latent vector and one rotated key per position, the same on all tensor ranks
  };
  Kind kind = Kind::full;
  std::int64_t window = 0;  ///< positions, the token's own included; 0 unless kind is window
  bool operator==(const CacheSpec&) const = default;
};

CacheSpec cache_spec_of(const ModelConfig& config, std::int64_t layer);

/// The distinct specs over all layers of the model, in order of first occurrence: the same on every
/// stage. At least one.
std::vector<CacheSpec> cache_groups(const ModelConfig& config);

/// The index in cache_groups of layer `layer`'s spec.
std::size_t cache_group_of(const ModelConfig& config, std::int64_t layer);

}  // namespace troupe
