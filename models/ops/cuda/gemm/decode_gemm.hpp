#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "models/ops/weight_format.hpp"
#include "parallel/device/dtype.hpp"

namespace troupe {

/// A GEMM of a decode batch's rows, bf16 or 8-bit codes with a scale a row (quantize_rows.hpp),
/// accumulated in fp32 (E4M3: over 512 columns by the tensor cores, whose sums are shorter; signed
/// bytes: exactly): few enough rows that reading the weights bounds it, or nearly. All pointers are
/// device memory, aligned to 16 bytes.
struct DecodeGemm {
  const void* weight = nullptr;   ///< [n, k] bf16 or codes
  const void* x = nullptr;        ///< [rows, k] bf16 or codes
  void* out = nullptr;            ///< [rows, n], with gated [rows, n / 2]
  DType out_dtype = DType::bf16;  ///< bf16 or f32; gated: bf16
  std::int64_t rows = 0, n = 0, k = 0;
  bool gated = false;                    ///< the first half of n is a gate: out = silu(gate) * up
  const float* weight_scales = nullptr;  ///< of codes: [n]; null: bf16
  /// The scales of codes in x: [rows]. If null beside weight_scales, x is bf16, and blocks make its
  /// codes, with the bits of launch_quantize_rows; cudaErrorInvalidValue unless
  /// decode_gemm_makes_codes.
  const float* x_scales = nullptr;
  CodeKind kind = CodeKind::e4m3;  ///< of codes: e4m3 or int8
};

/// The most rows that launch_decode_gemm supports.
inline constexpr std::int64_t max_decode_rows = 128;

/// How a GEMM is cut: `groups` times 64 rows of the weight per block (1 or 3), k split over `parts`
/// blocks of a cluster (1 to 4), whose sums are added in order.
struct DecodeGemmTiling {
  int groups = 1, parts = 1;

  bool operator==(const DecodeGemmTiling&) const = default;
};

/// True if launch_decode_gemm supports it: at most max_decode_rows, n and k multiples of 8 (gated:
/// n of 16; codes: k of 16), and hopper_kernels_run().
bool decode_gemm_fits(const DecodeGemm& gemm);

/// The tiling expected to be fastest; a function of n and k alone.
DecodeGemmTiling best_tiling(const DecodeGemm& gemm);

/// True if launch_decode_gemm with best_tiling can make the codes of x itself: x is one row, each
/// block has a multiprocessor for itself, and its shared memory holds the codes of its part of k. x
/// and x_scales may be null.
bool decode_gemm_makes_codes(const DecodeGemm& gemm);

/// True if launch_decode_gemm supports it and with best_tiling is likely faster than other kernels.
bool decode_gemm_suits(const DecodeGemm& gemm);

/// Enqueues out = x . weight^T. An output row is a function of its own input row, the weight and
/// the tiling, in bits. The kernel starts while the previous one ends, and reads its first weights
/// and their scales meanwhile.
cudaError_t launch_decode_gemm(const DecodeGemm& gemm, DecodeGemmTiling tiling,
                               cudaStream_t stream);

}  // namespace troupe
