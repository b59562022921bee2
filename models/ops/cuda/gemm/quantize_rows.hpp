#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace troupe {

/// Rows in 8-bit codes (E4M3, models/ops/fp8_rows.hpp), each with a scale: element [r, i] is
/// codes[r, i] * scales[r]. All pointers are device memory, aligned to 16 bytes.
struct QuantizeRows {
  const void* x = nullptr;        ///< [rows, k] bf16
  std::uint8_t* codes = nullptr;  ///< [rows, k]
  float* scales = nullptr;        ///< [rows]
  std::int64_t rows = 0, k = 0;   ///< k a multiple of 8
};

/// Enqueues it. Codes are rounded to nearest even; a row of zeros has the scale 1, one with an
/// infinity or NaN becomes NaN. The kernel starts while the previous one ends.
cudaError_t launch_quantize_rows(const QuantizeRows& rows, cudaStream_t stream);

}  // namespace troupe
