#pragma once

#include <filesystem>
#include <span>
#include <string_view>

#include "models/config/config_rules.hpp"
#include "models/layers/weights/parameters.hpp"

namespace troupe {

/// The properties in which architectures differ: how their config.json is read, and their
/// checkpoints' weight names. Layers are composed by the config that results.
struct Family {
  ConfigRules config;
  std::span<const WeightRule> weights;
  /// Returns the table of a config if names depend on it; null: `weights` is for all.
  std::span<const WeightRule> (*choose_weights)(const ModelConfig& config) = nullptr;
};

/// All architectures that this version runs.
std::span<const Family* const> families();

/// Returns the family of a config that load_model_config has read; a name that no family has is a
/// bug and ends the process.
const Family& family_of(const ModelConfig& config);

/// The weights of such a model's checkpoints.
std::span<const WeightRule> weight_rules_of(const ModelConfig& config);

/// Reads `folder`/config.json. Errors name the file: not_found; invalid_argument if the folder is a
/// file; corrupt_data with line and column for broken JSON; unsupported for an architecture that
/// no family has, with the list of supported ones; and those of read_config.
Result<ModelConfig> load_model_config(const std::filesystem::path& folder);

}  // namespace troupe
