#pragma once

#include "models/families/family.hpp"

namespace troupe {

/// DeepSeek-V3 (DeepSeek-AI 2024): multi-head latent attention; the first layers are dense, the
/// others have routed experts and a shared one. Its layers for multi-token prediction are not read.
const Family& deepseek_v3_family();

}  // namespace troupe
