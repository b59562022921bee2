#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "parallel/device/dtype.hpp"

namespace troupe {

/// Batch-invariant dense GEMM, bf16, accumulated in fp32 on Hopper's tensor cores: a row depends on
/// its own input row and the weight alone, in bits. All pointers are device memory, aligned to 16
/// bytes.
struct InvariantGemmCall {
  const void* weight = nullptr;   ///< [n, k] bf16
  const void* x = nullptr;        ///< [rows, k] bf16
  void* out = nullptr;            ///< [rows, n]
  DType out_dtype = DType::bf16;  ///< bf16 or f32
  std::int64_t rows = 0, n = 0, k = 0;
  /// Equal parts of k, 1, 2 or 4, whose sums are added as a binary tree (tree_sum.hpp).
  int segments = 1;
};

/// The most segments of one GEMM.
inline constexpr int max_invariant_segments = 4;

/// Enqueues out = x . weight^T: one block computes each segment of an element as one chain over its
/// k in steps of 16; the blocks of an element's segments form a cluster and add their sums. If a
/// segment's k is not a multiple of 8, or the device is not a Hopper, one thread computes a
/// segment's chain, in steps of one. The kernel starts while the previous one ends.
cudaError_t launch_invariant_gemm(const InvariantGemmCall& gemm, cudaStream_t stream);

/// Enqueues out = the tree sum of `parts`, [segments, count] f32 with count a multiple of 4,
/// rounded once to out's dtype, as launch_invariant_gemm adds its segments' sums.
cudaError_t add_segments(const float* parts, int segments, std::int64_t count, void* out,
                         DType out_dtype, cudaStream_t stream);

/// Enqueues: sets *differ, on the device, to nonzero if the two differ in any byte. `bytes` is a
/// multiple of 4.
cudaError_t compare_bits(const void* left, const void* right, std::size_t bytes, unsigned* differ,
                         cudaStream_t stream);

}  // namespace troupe
