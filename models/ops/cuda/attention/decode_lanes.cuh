// Warp-level helpers of attention: an instruction's result columns are spread over eight lanes,
// pairs of 16-bit elements are transposed.
#pragma once

#include <cstdint>

#include "parallel/device/cuda/device_math.cuh"

namespace troupe::cuda {

/// Transposes an 8 x 8 matrix of bf16, of which a lane has two adjacent elements of row lane / 4.
__device__ __forceinline__ std::uint32_t transposed(float left, float right) {
  std::uint32_t value = round_pair(left, right);
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(value));
  return value;
}
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
