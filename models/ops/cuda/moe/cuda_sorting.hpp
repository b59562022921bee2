#pragma once

#include <cuda_runtime.h>

#include "models/ops/moe_ops.hpp"

namespace troupe {

/// Enqueues MoeOps::permute and, unless `counts` is empty, MoeOps::count_rows as one kernel.
cudaError_t sort_assignments(const Tensor& ids, std::int64_t first_expert, const ExpertBatch& batch,
                             const Tensor& counts, cudaStream_t stream);

}  // namespace troupe
