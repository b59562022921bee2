#pragma once

#include <cstdint>
#include <optional>

#include "models/ops/ops.hpp"

namespace troupe {

// Limits of each device's allocate_kv and attention, known before there is a device. Errors:
// unsupported, with the limit and what was found.

Result<void> check_cpu_attention(const AttentionShape& shape, std::int64_t block_size, DType dtype);
Result<void> check_gpu_attention(const AttentionShape& shape, DType dtype);

/// The plan of FlashInfer's latent attention has room for so many tiles of rows times heads.
inline constexpr std::int64_t max_latent_tiles = 16384 - 1024, latent_tile_rows = 128;

/// The tokens that a pass of at most `sequences` sequences may have on a GPU that need not be
/// deterministic, however they are divided; nullopt: any number. At least 1.
std::optional<std::int64_t> max_gpu_pass_tokens(const AttentionShape& shape, DType dtype,
                                                std::int64_t sequences);

}  // namespace troupe
