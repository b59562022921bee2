#pragma once

#include "actors/api/engine_spec.hpp"
#include "launcher/config/cluster_config.hpp"
#include "models/config/model_config.hpp"
#include "models/kv_policy/kv_policy.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Returns the policy of the section kv_cache. `engine`: the device and the parallel sizes are
/// planned. Errors: invalid_argument or unsupported, with the key, why it does not go, and the
/// remedy, for numbers that contradict each other, for models whose cache cannot lose tokens and
/// for settings that need every token.
Result<KvPolicy> plan_kv_policy(const Config& config, const ModelConfig& model,
                                const EngineSpec& engine);

}  // namespace troupe
