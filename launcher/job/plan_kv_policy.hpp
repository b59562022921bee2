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

/// Returns the residuals of the section kv_cache, of a model's layers. `engine`: the parallel sizes
/// and kv_codes are planned. Errors: invalid_argument or unsupported, with the key and the remedy,
/// for layers that the model does not have, and where layers cannot differ.
Result<KvResiduals> plan_kv_residuals(const Config& config, const ModelConfig& model,
                                      const EngineSpec& engine);

/// The codes of an engine's KV cache and what they take, for people: "int4 with residuals of keys,
/// 3,136 bytes a token, 6.2 bits a number". `engine` has kv_codes.
Result<std::string> describe_kv_codes(const EngineSpec& engine, const ModelConfig& model);

}  // namespace troupe
