#pragma once

#include <filesystem>
#include <span>
#include <string_view>

#include "models/config/config_rules.hpp"
#include "models/layers/decoder_layer.hpp"
#include "models/layers/layer_context.hpp"
#include "models/layers/weights/parameters.hpp"

namespace troupe {

/// The properties in which architectures differ: how their config.json is read, their checkpoints'
/// weight names, and the composition of a layer.
struct Family {
  ConfigRules config;
  std::span<const WeightRule> weights;
  Result<DecoderLayer> (*build_layer)(const LayerContext& context, std::int64_t layer);
};

/// All architectures that this version runs.
std::span<const Family* const> families();

/// Returns the family of a config that load_model_config has read; a name that no family has is a
/// bug and ends the process.
const Family& family_of(const ModelConfig& config);

/// True if the family's checkpoints have such a weight.
bool has_weight(const Family& family, Parameter parameter);

/// Reads `folder`/config.json. Errors name the file: not_found; corrupt_data with line and column
/// for broken JSON; unsupported for an architecture that no family has, with the list of
/// supported ones; and those of read_config.
Result<ModelConfig> load_model_config(const std::filesystem::path& folder);

}  // namespace troupe
