#pragma once

#include <cstdint>

namespace troupe {

/// How large the activations were that a layer's products have rounded to 8 bits.
struct LayerPeak {
  std::int32_t layer = 0;  ///< of the whole model
  float largest = 0.0F;    ///< magnitude; infinite if a number was not finite

  template <class Archive>
  void fields(Archive& archive) {
    archive(layer, largest);
  }
};

}  // namespace troupe
