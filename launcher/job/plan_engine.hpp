#pragma once

#include <optional>
#include <string_view>

#include "actors/api/engine_spec.hpp"
#include "launcher/config/cluster_config.hpp"
#include "launcher/machine/machine.hpp"
#include "models/config/model_config.hpp"
#include "parallel/mesh/mesh.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Builds the engine's spec from the configuration; decides every `auto` except for the KV blocks.
/// `cores` are those of this machine, `assumed` the GPUs that count instead of its own, and
/// `computes_here` says that this machine is the only node: the devices of others are looked at by
/// the preflight. Errors: invalid_argument, naming the key; not_found if GPUs are missing.
Result<EngineSpec> plan_engine(const Config& config, const ModelConfig& model, const Mesh& mesh,
                               int cores, const std::optional<Gpus>& assumed, bool computes_here);

LoadFormat load_format(const Config& config);

/// Prefixes the error with the YAML key that the user can change.
Error about_key(std::string_view key, Error error);

}  // namespace troupe
