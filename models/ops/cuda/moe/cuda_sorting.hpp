#pragma once

#include <cuda_runtime.h>

#include "models/ops/ops.hpp"

namespace troupe {

/// Enqueues Ops::permute and, unless `counts` is empty, Ops::count_rows as one kernel.
cudaError_t sort_assignments(const Tensor& ids, std::int64_t first_expert, const ExpertBatch& batch,
                             const Tensor& counts, cudaStream_t stream);

}  // namespace troupe
