#pragma once

#include <string>

#include "models/config/config_rules.hpp"
#include "models/config/fields.hpp"

namespace troupe {

/// The architecture that a config.json names: the first of `architectures`, or its model_type.
/// corrupt_data if it has neither.
Result<std::string> read_architecture(const Fields& fields);

/// Reads a config.json by the rules of its architecture, in the spelling of transformers 4
/// (rope_theta, rope_scaling, torch_dtype, num_experts) or 5 (rope_parameters, dtype,
/// num_local_experts). Errors name the file: corrupt_data with the key for one that is missing, of
/// the wrong type or out of range; unsupported for features that this version does not compute.
Result<ModelConfig> read_config(const Fields& fields, const ConfigRules& rules);

}  // namespace troupe
