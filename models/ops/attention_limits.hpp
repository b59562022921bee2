#pragma once

#include <cstdint>

#include "models/ops/ops.hpp"

namespace troupe {

// Limits of each device's allocate_kv and attention, known before there is a device. Errors:
// unsupported, with the limit and what was found.

Result<void> check_cpu_attention(const AttentionShape& shape, std::int64_t block_size, DType dtype);
Result<void> check_gpu_attention(const AttentionShape& shape, DType dtype);

}  // namespace troupe
