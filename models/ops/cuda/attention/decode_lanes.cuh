// Warp-level helpers of attention: an instruction's result columns are spread over eight lanes.
#pragma once

#include <cstdint>

#include "parallel/device/cuda/device_math.cuh"

namespace troupe::cuda {

__device__ __forceinline__ float max_of_column(float value) {
#pragma unroll
  for (int lanes = 4; lanes < 32; lanes *= 2) {
    value = fmaxf(value, __shfl_xor_sync(~0U, value, lanes));
  }
  return value;
}
__device__ __forceinline__ float sum_of_column(float value) {
#pragma unroll
  for (int lanes = 4; lanes < 32; lanes *= 2) value += __shfl_xor_sync(~0U, value, lanes);
  return value;
}
__device__ __forceinline__ uint4 word_pairs(uint4 a, uint4 b, unsigned which) {
  return {__byte_perm(a.x, b.x, which), __byte_perm(a.y, b.y, which), __byte_perm(a.z, b.z, which),
          __byte_perm(a.w, b.w, which)};
}

}  // namespace troupe::cuda
