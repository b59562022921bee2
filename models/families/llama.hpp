#pragma once

#include "models/families/family.hpp"

namespace troupe {

/// Llama 2 and 3 (Touvron et al. 2023, Grattafiori et al. 2024) and models that differ from them in
/// their config alone: Mistral (Jiang et al. 2023; a window in every layer) and Qwen2 (Yang et al.
/// 2024; biases of queries, keys and values, windows in some layers). Pre-norm layers,
/// grouped-query attention, SwiGLU.
const Family& llama_family();

}  // namespace troupe
