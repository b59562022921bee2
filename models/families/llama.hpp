#pragma once

#include "models/families/family.hpp"

namespace troupe {

/// Llama 2 and 3 (Touvron et al. 2023, Grattafiori et al. 2024): pre-norm layers, grouped-query
/// attention, SwiGLU.
const Family& llama_family();

}  // namespace troupe
