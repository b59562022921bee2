#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace troupe {

/// The part of the rounding error that a layer's KV cache in int4 holds in 4 more bits. Both
/// together are a code of 8 bits (i8), and are stored as one.
enum class KvResidual : std::uint8_t {
  none,
  keys,  ///< of keys
  all,   ///< of keys and values
};

/// The residuals of a model's layers.
struct KvResiduals {
  KvResidual kind = KvResidual::none;
  std::vector<std::int32_t> layers = {};  ///< that have them; empty: all

  KvResidual of(std::int64_t layer) const {
    return layers.empty() || std::ranges::find(layers, layer) != layers.end() ? kind
                                                                              : KvResidual::none;
  }
  bool operator==(const KvResiduals&) const = default;

  template <class Archive>
  void fields(Archive& archive) {
    archive(kind, layers);
  }
};

}  // namespace troupe
