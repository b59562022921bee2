#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "models/ops/coded_panels.hpp"
#include "parallel/device/dtype.hpp"

namespace troupe {

/// Products of sorted rows in bf16 with their experts' matrices of 4-bit codes or of E4M3 (W4A16,
/// W8A16, MoeOps::grouped_linear) on Hopper's tensor cores, accumulated in fp32. Codes become
/// numbers of bf16 in registers, each rounded once after it was multiplied by its scale; those of
/// MXFP4 are exact for scales from 2^-93 to 2^33, those of NVFP4 and E4M3 always: their sums are
/// multiplied by the scales of rows. All pointers are device memory, aligned to 16 bytes.
struct CodedGroupedGemm {
  /// Of an expert [n, k]: from expert_panels(), or of E4M3 with a scale for each row.
  CodedPanels layout = {};
  const void* panels = nullptr;           ///< [experts] of code_bytes()
  const float* row_scales = nullptr;      ///< [experts, n], if the layout has them
  const void* x = nullptr;                ///< [tokens, k] bf16 with gather, else sorted rows
  void* out = nullptr;                    ///< [assignments, n], with gated [assignments, n / 2]
  DType out_dtype = DType::bf16;          ///< bf16 or f32
  const std::int32_t* offsets = nullptr;  ///< [experts + 1]
  const std::int32_t* source = nullptr;   ///< [assignments]
  std::int64_t assignments = 0, experts = 0, top_k = 1;
  bool gather = false, scatter = false;
  bool gated = false;  ///< the first half of n is a gate: out = silu(gate) * up
  // With gated.
  bool clamped = false;         ///< Activation::clamped_gated instead
  const float* bias = nullptr;  ///< [experts, n], added first; null: none
};

/// Enqueues the GEMM on the current device, on which hopper_kernels_run(): blocks find their tiles
/// through `offsets` on the device, so that a captured graph may be replayed with others. An output
/// row is a function of its own input row and its expert alone, in bits: each element is one chain
/// over k in steps of 16 on the tensor cores, as of launch_grouped_gemm with the same numbers.
cudaError_t launch_coded_grouped_gemm(const CodedGroupedGemm& gemm, cudaStream_t stream);

}  // namespace troupe
