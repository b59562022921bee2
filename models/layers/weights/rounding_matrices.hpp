#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "models/ops/linear.hpp"

namespace troupe {

/// The matrices of each layer whose products round activations to 8 bits. Layers own them.
struct RoundingMatrices {
  std::map<std::int64_t, std::vector<Linear*>> linear;
  std::map<std::int64_t, std::vector<GroupedLinear*>> experts;
};

}  // namespace troupe
