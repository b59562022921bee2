#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "models/config/model_config.hpp"

namespace troupe {

/// The content of a layer's KV cache for a sequence. Only layers with equal specs can share a block
/// table.
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

/// The spec of each cache group of the model, the same on every stage. The layers of a group share
/// one block table. Groups have about equal numbers of layers, so that a block, which any group may
/// hold, has no unused parts: layers of one spec form several groups if those of another are fewer.
/// Specs stand in order of first occurrence; at least one.
std::vector<CacheSpec> cache_groups(const ModelConfig& config);

/// The index in cache_groups of each layer's group. The layers of a spec are dealt to its groups in
/// turn, so that every stage has about as many of each.
std::vector<std::size_t> cache_groups_of_layers(const ModelConfig& config);

}  // namespace troupe
