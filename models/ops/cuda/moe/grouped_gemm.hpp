#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "models/ops/cuda/gemm/head_rows.hpp"
#include "parallel/device/dtype.hpp"

namespace troupe {

/// Products of sorted rows with their experts' matrices (MoeOps::grouped_linear), of bf16 or of
/// E4M3 codes with a scale a row (quantize_rows.hpp), on Hopper's tensor cores, accumulated in fp32
/// (codes: over 128 columns by the tensor cores, whose sums are shorter). All pointers are device
/// memory, aligned to 16 bytes.
struct GroupedGemm {
  const void* weights = nullptr;          ///< [experts, n, k] bf16 or codes
  const void* x = nullptr;                ///< [tokens, k] alike with gather, else sorted rows
  void* out = nullptr;                    ///< [assignments, n], with gated [assignments, n / 2]
  DType out_dtype = DType::bf16;          ///< bf16 or f32
  const std::int32_t* offsets = nullptr;  ///< [experts + 1]
  const std::int32_t* source = nullptr;   ///< [assignments]
  std::int64_t assignments = 0, experts = 0, n = 0, k = 0, top_k = 1;
  bool gather = false, scatter = false;
  /// The first half of n is a gate: out = silu(gate) * up.
  bool gated = false;
  const float* weight_scales = nullptr;  ///< of codes: [experts, n]; null: bf16
  const float* x_scales = nullptr;       ///< of codes: of each row of x
  /// If it has rows, experts are heads, and there are no offsets and no source. Not of codes.
  HeadRows heads = {};

  bool is_coded() const { return weight_scales != nullptr; }
};

/// How a GEMM is cut into tiles: rows of an expert by columns of its matrix.
enum class GroupedGemmTiling : std::uint8_t {
  rows_16,   ///< 16 x 128
  rows_32,   ///< 32 x 128
  rows_64,   ///< 64 x 128
  rows_80,   ///< 80 x 128; of codes
  rows_256,  ///< 256 x 256, by two blocks (grouped_gemm_2cta.hpp); not of heads
};

/// The tiling that measured fastest for this many rows per expert.
GroupedGemmTiling best_tiling(const GroupedGemm& gemm);

/// True if these kernels support it: k and n (with gated n / 2) are multiples of 8, k of codes of
/// 16, an expert's matrix has less than 2^32 elements, there are at most 1,024 experts, and
/// hopper_kernels_run(). It does not depend on `assignments`.
bool grouped_gemm_fits(const GroupedGemm& gemm);

/// Enqueues the GEMM on the current device: one launch of as many blocks as fit at once, which find
/// their tiles through `offsets` on the device, so that a captured graph may be replayed with
/// others. An output row is a function of its own input row and its expert alone, in bits: each
/// element is one chain over k in steps of 16 on the tensor cores, whatever the tiling; of codes a
/// chain in fp32 of chains over 128 columns in steps of 32, times the scale of x, then the
/// weight's.
cudaError_t launch_grouped_gemm(const GroupedGemm& gemm, GroupedGemmTiling tiling,
                                cudaStream_t stream);
inline cudaError_t launch_grouped_gemm(const GroupedGemm& gemm, cudaStream_t stream) {
  return launch_grouped_gemm(gemm, best_tiling(gemm), stream);
}

}  // namespace troupe
