#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "parallel/device/dtype.hpp"

namespace troupe {

/// Dense products, bf16, accumulated in fp32 on Hopper's tensor cores, of which a row depends on
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

/// Most segments of one product.
inline constexpr int max_invariant_segments = 4;

/// Enqueues out = x . weight^T: each segment of an element is one chain over its k in steps of 16,
/// which a block has; the blocks of an element's segments are a cluster and add their sums. Where a
/// segment's k is no multiple of 8, or the device is no Hopper, one thread has the chain of a
/// segment, in steps of one. The kernel starts while the one before it ends.
cudaError_t launch_invariant_gemm(const InvariantGemmCall& gemm, cudaStream_t stream);

/// Enqueues out = the tree sum of `parts`, [segments, count] f32 with count a multiple of 4,
/// rounded once to out's dtype: what launch_invariant_gemm does with its segments' sums.
cudaError_t add_segments(const float* parts, int segments, std::int64_t count, void* out,
                         DType out_dtype, cudaStream_t stream);

/// Enqueues: *differ, on the device, becomes not 0 if a byte of the two differs. `bytes` is a
/// multiple of 4.
cudaError_t compare_bits(const void* left, const void* right, std::size_t bytes, unsigned* differ,
                         cudaStream_t stream);

}  // namespace troupe
