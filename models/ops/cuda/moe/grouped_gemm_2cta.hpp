#pragma once

#include <cuda_runtime.h>

#include "models/ops/cuda/moe/grouped_gemm.hpp"

namespace troupe {

/// launch_grouped_gemm with tiles of 256 rows x 256 columns, each by a cluster of two blocks that
/// share the weights they read: half as much comes from the second-level cache, which bounds
/// smaller tiles. An expert's remaining rows, at most 128, are tiles of 128 x 512.
cudaError_t launch_grouped_gemm_2cta(const GroupedGemm& gemm, cudaStream_t stream);

}  // namespace troupe
