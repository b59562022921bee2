#pragma once

#include <cuda_runtime.h>

#include "models/ops/cuda/moe/coded_grouped_gemm.hpp"

namespace troupe {

/// launch_coded_grouped_gemm with tiles of 128 rows of the weights x 256 rows of x, for experts
/// with many rows; the same sums, in bits.
cudaError_t launch_coded_grouped_gemm_wide(const CodedGroupedGemm& gemm, cudaStream_t stream);

}  // namespace troupe
