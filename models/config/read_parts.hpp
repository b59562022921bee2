#pragma once

#include "models/config/fields.hpp"
#include "models/config/model_config.hpp"

namespace troupe {

// The parts of a config.json from which ModelConfig::load builds its result. Errors: see there.

/// Bounds above any model known, and far below what could overflow a product of two in 64 bits.
inline constexpr std::int64_t max_width = 1 << 20;
inline constexpr std::int64_t max_layers = 1 << 12;
inline constexpr std::int64_t max_heads = 1 << 14;
inline constexpr std::int64_t max_experts = 1 << 14;
inline constexpr std::int64_t max_vocabulary = 1 << 24;
inline constexpr std::int64_t max_positions = 1 << 28;

/// Reads rope_theta and the scaling of rope_parameters or rope_scaling. `stated_positions` is the
/// file's max_position_embeddings.
Result<RopeConfig> read_rope(const Fields& fields, std::int64_t stated_positions);

/// The longest sequence with `rope` for a model of `stated_positions`.
std::int64_t longest_sequence(const RopeConfig& rope, std::int64_t stated_positions);

/// Reads the experts of an architecture that has them; the architecture, layers and
/// intermediate_size of `config` are set.
Result<MoeConfig> read_moe(const Fields& fields, const ModelConfig& config);

/// Returns ModelConfig::windows; layers and max_position_embeddings of `config` are set.
Result<std::vector<std::int64_t>> read_windows(const Fields& fields, const ModelConfig& config);

/// Sets `latent`, kv_heads and head_dim.
Result<void> read_latent(const Fields& fields, ModelConfig& config);

}  // namespace troupe
