#pragma once

#include <cstdint>

#include "models/config/fields.hpp"
#include "models/config/model_config.hpp"

namespace troupe {

// These read the keys of config.json that families with DeepSeek's attention or experts share.
// Errors as read_config.

/// Sets config.latent, kv_heads and head_dim.
Result<void> read_latent_heads(const Fields& fields, ModelConfig& config);

/// Values of absent keys.
struct ExpertDefaults {
  double weight_scale = 1.0;      ///< routed_scaling_factor
  std::int64_t dense_layers = 0;  ///< first_k_dense_replace
  std::int64_t shared = 1;        ///< n_shared_experts
};

/// Reads the keys of routed and shared experts that do not depend on how they are chosen.
Result<MoeConfig> read_routed_experts(const Fields& fields, const ExpertDefaults& absent,
                                      const ModelConfig& config);

/// Sets `moe`'s groups from n_group and topk_group.
Result<void> read_groups(const Fields& fields, MoeConfig& moe);

/// Sets config.moe for DeepSeek-V3's choice: sigmoids with a bias, within groups (DeepSeek-AI 2024,
/// DeepSeek-V3, section 2.1.2).
Result<void> read_sigmoid_experts(const Fields& fields, const ExpertDefaults& absent,
                                  ModelConfig& config);

}  // namespace troupe
