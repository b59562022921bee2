#pragma once

#include <cuda_runtime.h>

#include "models/ops/cuda/moe/grouped_gemm.hpp"

namespace troupe {

/// launch_grouped_gemm by tiles of 256 rows x 256 columns, each of a cluster of two blocks that
/// share what they read of the weights: half as much comes from the second-level cache, which
/// bounds smaller tiles. At most 128 rows that are left of an expert are tiles of 128 x 512.
cudaError_t launch_grouped_gemm_2cta(const GroupedGemm& gemm, cudaStream_t stream);

}  // namespace troupe
