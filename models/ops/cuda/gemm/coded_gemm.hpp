#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "models/ops/coded_panels.hpp"

namespace troupe {

/// A matrix of codes on the device. Both are aligned to 16 bytes.
struct CodedWeight {
  CodedPanels layout = {};
  const void* panels = nullptr;       ///< code_bytes()
  const float* row_scales = nullptr;  ///< [n] if the layout has them
};

/// A GEMM of few rows in bf16 with a matrix of codes (W4A16, W8A16), bound by reading the codes.
/// They become bf16 exactly in registers, of one row or two 4-bit integers become f16, for which x
/// is rounded to f16, too: an eighth of it, or less for codes that are multiples of 16, so that x
/// beyond 524,000 is infinite and below 0.008 exact to 2^-18. Products are accumulated in fp32, and
/// the sum over a group is multiplied by its scale in fp32. In groups of 16 columns (NVFP4) codes
/// become bf16 with their scales, exactly, and the sum over a row is multiplied by the row's.
/// Pointers are device memory, aligned to 16 bytes.
struct CodedGemm {
  CodedWeight weight = {};        ///< [n, k]
  const void* x = nullptr;        ///< [rows, k] bf16
  void* out = nullptr;            ///< [rows, n], with gated [rows, n / 2]
  DType out_dtype = DType::bf16;  ///< bf16 or f32
  std::int64_t rows = 0;
  bool gated = false;  ///< the first half of n is a gate: out = silu(gate) * up
};

/// True if launch_coded_gemm supports it: at most 2 rows, gated ones with halves of n that are
/// whole panels, and hopper_kernels_run().
bool coded_gemm_fits(const CodedGemm& gemm);

/// Enqueues out = x . weight^T. An output row is a function of its own input row and the weight, in
/// bits. The kernel starts while the previous one ends, and reads its first codes meanwhile.
cudaError_t launch_coded_gemm(const CodedGemm& gemm, cudaStream_t stream);

}  // namespace troupe
