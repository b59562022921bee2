#pragma once

#include "models/config/config_limits.hpp"
#include "models/config/config_rules.hpp"
#include "models/config/fields.hpp"
#include "models/config/model_config.hpp"

namespace troupe {

// The parts of a config.json that read_config puts together. Errors as read_config.

/// Sets rope, window_rope, rotary_dim and interleaved_rope of `config`, whose heads are set.
/// `stated_positions` is the file's max_position_embeddings.
Result<void> read_ropes(const Fields& fields, const ConfigRules& rules,
                        std::int64_t stated_positions, ModelConfig& config);

/// The longest sequence with `rope` for a model of `stated_positions`.
std::int64_t longest_sequence(const RopeConfig& rope, std::int64_t stated_positions);

/// Reads ModelConfig::windows; the layers and max_position_embeddings of `config` are set.
Result<std::vector<std::int64_t>> read_windows(const Fields& fields, const ConfigRules& rules,
                                               const ModelConfig& config);

/// Reads a token id or a list of them.
Result<std::vector<std::int32_t>> read_token_ids(const Fields& fields, Fields::Spellings keys);

}  // namespace troupe
