#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "models/ops/weight_format.hpp"

namespace troupe {

/// Rows in 8-bit codes, each with a scale: element [r, i] is codes[r, i] * scales[r]. The scale is
/// that of models/ops/fp8_rows.hpp or, of signed bytes, the largest magnitude / 127. Codes are
/// rounded to nearest even; a row of zeros has the scale 1, one with an infinity or NaN becomes
/// NaN. All pointers are device memory, aligned to 16 bytes.
struct CodedRows {
  std::uint8_t* codes = nullptr;  ///< [rows, k]
  float* scales = nullptr;        ///< [rows]
  /// Raised to the largest magnitude of the rows, infinity if one is not finite; null: not.
  float* peak = nullptr;
  CodeKind kind = CodeKind::e4m3;  ///< e4m3 or int8
};

/// Enqueues the codes of x [rows, k] bf16; k is a multiple of 8. The kernel starts while the
/// previous one ends.
cudaError_t launch_quantize_rows(const void* x, std::int64_t rows, std::int64_t k,
                                 const CodedRows& to, cudaStream_t stream);

/// The same of the first *count rows, a number on the device, at most `rows`; others are left
/// unchanged.
cudaError_t launch_quantize_counted_rows(const void* x, const std::int32_t* count,
                                         std::int64_t rows, std::int64_t k, const CodedRows& to,
                                         cudaStream_t stream);

/// launch_quantize_rows with scales that are there. Not launched early.
cudaError_t launch_quantize_scaled_rows(const void* x, std::int64_t rows, std::int64_t k,
                                        const CodedRows& to, cudaStream_t stream);

/// Enqueues out = silu(gate) * up, and its codes: gate_up [rows, 2 * k] (gate first), out [rows,
/// k], both bf16; out may be null. Otherwise like launch_quantize_rows.
cudaError_t launch_silu_mul_coded(const void* gate_up, std::int64_t rows, std::int64_t k, void* out,
                                  const CodedRows& to, cudaStream_t stream);

}  // namespace troupe
