#pragma once

#include <cstdint>
#include <limits>

namespace troupe {

// Bounds on what a config.json may say, above any model known and far below what could overflow a
// product of two in 64 bits.

inline constexpr std::int64_t max_width = 1 << 20;
inline constexpr std::int64_t max_layers = 1 << 12;
inline constexpr std::int64_t max_heads = 1 << 14;
inline constexpr std::int64_t max_experts = 1 << 14;
inline constexpr std::int64_t max_vocabulary = 1 << 24;
inline constexpr std::int64_t max_positions = 1 << 28;
inline constexpr std::int64_t max_token_id = std::numeric_limits<std::int32_t>::max();

}  // namespace troupe
