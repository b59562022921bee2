#pragma once

#include <cstdint>
#include <string>

namespace troupe {

/// A layer of a step domain that has fallen back to activations of full width, because some were
/// larger than 8 bits are to hold (Model::widen_layers).
struct WidenedLayer {
  std::int32_t layer = 0;
  float largest = 0.0F;    ///< magnitude that was seen first; infinite: not a finite number
  std::int32_t rank = 0;   ///< that saw it
  std::uint64_t step = 0;  ///< from which on

  template <class Archive>
  void fields(Archive& archive) {
    archive(layer, largest, rank, step);
  }
};

/// "layer 3 computes with activations of full width from step 17 on: rank 1 had 5120".
std::string describe(const WidenedLayer& widened);

}  // namespace troupe
