#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "models/ops/cuda/moe/routing.cuh"

namespace troupe {

/// The router of a few tokens (MoeOps::route_tokens), bf16. All pointers are device memory, tensors
/// aligned to 16 bytes.
struct SmallBatchRouter {
  const void* weight = nullptr;  ///< [experts, hidden] bf16
  const void* x = nullptr;       ///< [tokens, hidden] bf16
  const float* bias = nullptr;   ///< [experts], or null
  std::int64_t tokens = 0, hidden = 0;
  cuda::Routing routing{};
};

/// True if launch_small_batch_router supports it: at most 8 tokens and 128 experts in one group,
/// hidden a multiple of 8, and hopper_kernels_run().
bool small_batch_router_fits(const SmallBatchRouter& call);

/// Enqueues the GEMM with the router's matrix, the choice and the sorting, as one kernel.
cudaError_t launch_small_batch_router(const SmallBatchRouter& call,
                                      const cuda::SmallBatchChoices& to, cudaStream_t stream);

}  // namespace troupe
