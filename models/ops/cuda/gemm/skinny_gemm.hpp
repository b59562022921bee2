#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "models/ops/cuda/gemm/head_rows.hpp"
#include "parallel/device/dtype.hpp"

namespace troupe {

/// A GEMM of a few rows, bf16, accumulated in fp32: bound by reading the weights. Weights of small
/// matrices go directly from device memory to registers, those of large ones through shared memory.
/// All pointers are device memory, aligned to 16 bytes.
struct SkinnyGemm {
  const void* weight = nullptr;   ///< [n, k] bf16
  const void* x = nullptr;        ///< [rows, k] bf16
  void* out = nullptr;            ///< [rows, n], with gated [rows, n / 2]
  DType out_dtype = DType::bf16;  ///< bf16 or f32
  std::int64_t rows = 0, n = 0, k = 0;
  bool gated = false;  ///< the first half of n is a gate: out = silu(gate) * up
  /// If it has rows, `weight` is [matrices, n, k], one for each head; not gated then.
  HeadRows heads{};
  std::int64_t matrices = 1;
};

/// True if launch_skinny_gemm supports it: at most 8 rows, k a multiple of 8, aligned rows of
/// heads, and hopper_kernels_run().
bool skinny_gemm_fits(const SkinnyGemm& gemm);

/// Enqueues out = x . weight^T. An output row is a function of its own input row and the weight, in
/// bits: chains over columns of k, whose number and order are a function of n and k alone, and
/// whose sums are added in order. The kernel starts while the previous one ends, and reads its
/// first weights meanwhile.
cudaError_t launch_skinny_gemm(const SkinnyGemm& gemm, cudaStream_t stream);

}  // namespace troupe
