#pragma once

#include <cuda_runtime.h>

#include "models/ops/attention_ops.hpp"

namespace troupe {

/// AttentionOps::norm_rope_store into a cache of codes. A row's codes depend on that row
/// alone.
cudaError_t store_coded_heads(const Tensor& qkv, const Tensor& q_norm, const Tensor& k_norm,
                              float eps, const Tensor& rope, const AttentionShape& shape,
                              const AttentionBatch& batch, const KvLayer& cache,
                              const Tensor& q_out, cudaStream_t stream);

}  // namespace troupe
