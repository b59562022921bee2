#pragma once

#include "models/config/model_config.hpp"

namespace troupe {

/// Refuses a model with operations for which GPUs have no kernel, before anything starts. Errors:
/// unsupported, naming the operation.
Result<void> check_gpu_layers(const ModelConfig& config);

}  // namespace troupe
