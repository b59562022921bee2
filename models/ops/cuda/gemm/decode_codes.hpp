#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "models/ops/cuda/gemm/coded_gemm.hpp"

namespace troupe {

/// Enqueues the numbers of `count` rows from `first` on, a multiple of 8, rounded to
/// bf16: out [count, k].
cudaError_t launch_decode_rows(const CodedWeight& weight, std::int64_t first, std::int64_t count,
                               void* out, cudaStream_t stream);

}  // namespace troupe
