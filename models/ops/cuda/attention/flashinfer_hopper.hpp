#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "models/ops/attention_ops.hpp"
#include "models/ops/cuda/common/device_buffer.hpp"
#include "parallel/sharding/sharding.hpp"

namespace troupe {

/// Attention of long prompts of bf16 by FlashInfer's kernel for Hopper: products by `wgmma`, whose
/// operands the copy engine fetches while others are multiplied (Shah et al. 2024,
/// "FlashAttention-3"). The kernel reads keys and values row after row, so they are gathered from
/// the pages first, codes as bf16: as many KV heads at a time as there is memory for. One
/// thread at a time.
class FlashInferHopper {
 public:
  /// True if a sequence of this length is attended to faster here than with others in one kernel.
  static bool suits(const AttentionShape& shape, const SequenceSpan& span);

  /// True if it can attend to a sequence of this length at all.
  static bool takes(const AttentionShape& shape, const SequenceSpan& span);

  /// Allocates the 144 MiB that attend needs. Call once, before it. Errors: resource_exhausted,
  /// internal.
  Result<void> reserve();

  /// Enqueues AttentionOps::attend for the rows of `span`, one of `batch`'s that suits. Errors:
  /// internal.
  Result<void> attend(const Tensor& q, const AttentionShape& shape, const AttentionBatch& batch,
                      const SequenceSpan& span, const KvLayer& cache, const Tensor& out,
                      cudaStream_t stream);

 private:
  /// Enqueues the copy of some KV heads of the pages of `table`.
  cudaError_t gather(const KvLayer& cache, const AttentionShape& shape, const AttentionBatch& batch,
                     const std::int32_t* table, std::int64_t page_count, Slice heads,
                     cudaStream_t stream) const;

  DeviceBuffer gathered_;  ///< [2][KV heads at a time][positions][head_dim]: keys, then values
};

}  // namespace troupe
