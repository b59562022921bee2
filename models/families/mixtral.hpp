#pragma once

#include "models/families/family.hpp"

namespace troupe {

/// Mixtral (Jiang et al. 2024): Mistral's layers with experts in place of every MLP.
const Family& mixtral_family();

}  // namespace troupe
