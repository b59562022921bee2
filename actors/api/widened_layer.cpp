#include "actors/api/widened_layer.hpp"

#include <fmt/format.h>

namespace troupe {

std::string describe(const WidenedLayer& widened) {
  return fmt::format(
      "layer {} computes with activations of full width from step {} on: rank {} had {:g}",
      widened.layer, widened.step, widened.rank, widened.largest);
}

}  // namespace troupe
