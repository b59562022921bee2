#pragma once

#include "models/families/family.hpp"

namespace troupe {

/// Qwen3 (Yang et al. 2025), dense and with experts: pre-norm layers, grouped-query attention with
/// normalised query and key heads, SwiGLU; in Qwen3-MoE some layers have experts instead.
const Family& qwen3_family();

}  // namespace troupe
