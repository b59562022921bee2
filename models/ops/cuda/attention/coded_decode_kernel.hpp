#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "models/ops/cuda/attention/decode_kernel.hpp"
#include "parallel/device/dtype.hpp"

namespace troupe {

/// As decode_blocks, for codes: widening them takes more warps at once than reading bf16.
inline int coded_decode_blocks(std::int64_t items, int multiprocessors) {
  return items > 2 * multiprocessors ? 4 : items > multiprocessors ? 2 : 1;
}
constexpr int max_coded_decode_blocks = 4;

/// As launch_decode_attention, over a cache of codes (CodedPages): pass.keys and pass.values are
/// its addresses, `keys` and `values` their dtypes, `blocks` coded_decode_blocks(). Without `early`
/// the kernel begins when all before it have ended: keys that this pass has written may then lie
/// anywhere.
cudaError_t launch_coded_decode_attention(const DecodePass& pass, DType keys, DType values,
                                          int blocks, int head_dim, bool early,
                                          cudaStream_t stream);

}  // namespace troupe
