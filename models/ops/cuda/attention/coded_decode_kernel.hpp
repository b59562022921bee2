#pragma once

#include <cuda_runtime.h>

#include "models/ops/cuda/attention/decode_kernel.hpp"
#include "parallel/device/dtype.hpp"

namespace troupe {

/// As launch_decode_attention, over a cache of codes (CodedPages): pass.keys and pass.values are
/// its addresses. Without `early` the kernel begins when all before it have ended: keys that this
/// pass has written may then lie anywhere.
cudaError_t launch_coded_decode_attention(const DecodePass& pass, DType stored, int blocks,
                                          int head_dim, bool early, cudaStream_t stream);

}  // namespace troupe
