#pragma once

#include <cstdint>
#include <optional>

#include <cuda_runtime.h>

#include "models/ops/weight_format.hpp"

namespace troupe {

/// A GEMM of many rows of 8-bit codes with a matrix of such codes, a scale for each row of either
/// (quantize_rows.hpp), accumulated in fp32 (E4M3: over 512 columns by the tensor cores, whose sums
/// are shorter) or, signed bytes, exactly. All pointers are device memory, aligned to 16 bytes.
struct ScaledGemm {
  const void* weight = nullptr;  ///< [n, k]
  const void* x = nullptr;       ///< [rows, k]
  void* out = nullptr;           ///< [rows, n] bf16
  std::int64_t rows = 0, n = 0, k = 0;
  const float* weight_scales = nullptr;  ///< [n]
  const float* x_scales = nullptr;       ///< [rows], readable up to a multiple of 4 rows
  CodeKind kind = CodeKind::e4m3;        ///< e4m3 or int8
};

/// What the two blocks of a pair have in common: rows of the weight or of x, half of which each
/// reads for both, or the tile, of which each adds up half of k.
enum class PairShares : std::uint8_t { weight, x, tile };

/// How a GEMM is cut: tiles of 128 rows of x by `columns` rows of the weight (64, 96, 128 or 192;
/// of signed bytes, unless PairShares::tile, 256), taken by pairs of blocks.
struct ScaledGemmTiling {
  int columns = 128;
  PairShares shares = PairShares::weight;

  bool operator==(const ScaledGemmTiling&) const = default;
};

/// True if launch_scaled_gemm supports it: k is a multiple of 16, n one of 8, and
/// hopper_kernels_run(). Sums of signed bytes are exact for up to 65,536 columns.
bool scaled_gemm_fits(const ScaledGemm& gemm);

/// The tiling expected to be fastest; none if launch_scaled_gemm does not support it, or cuBLASLt,
/// which has no such product of signed bytes, is expected to be faster.
std::optional<ScaledGemmTiling> best_tiling(const ScaledGemm& gemm);

/// Enqueues out = x . weight^T. The bits of a row depend on whether k is cut (PairShares::tile) and
/// on nothing else. The kernel starts while the previous one ends, and reads its first weights
/// meanwhile. With PairShares::tile there must be no more tiles than pairs of multiprocessors, and
/// more than 128 columns of k: else cudaErrorInvalidValue.
cudaError_t launch_scaled_gemm(const ScaledGemm& gemm, ScaledGemmTiling tiling,
                               cudaStream_t stream);

}  // namespace troupe
