#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "models/ops/cuda/gemm/coded_gemm.hpp"

namespace troupe {

/// True if launch_coded_decode_gemm supports it: any number of rows, gated ones in bf16 with halves
/// of n that are whole panels, and hopper_kernels_run().
bool coded_decode_gemm_fits(const CodedGemm& gemm);

/// Enqueues out = x . weight^T like launch_coded_gemm, for more rows: 64 of them at a time are
/// multiplied with all codes.
cudaError_t launch_coded_decode_gemm(const CodedGemm& gemm, cudaStream_t stream);

}  // namespace troupe
