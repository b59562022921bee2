#pragma once

#include "models/config/fields.hpp"
#include "models/config/model_config.hpp"

namespace troupe {

/// Reads the keys of routed experts that Qwen2-MoE and Qwen3-MoE share. Errors as read_config.
Result<MoeConfig> read_qwen_experts(const Fields& fields, const ModelConfig& config);

}  // namespace troupe
