// Shared by all kernels: both activation types as floats, sums over a warp or block.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>

#include "parallel/device/dtype.hpp"

namespace troupe::cuda {

using bf16 = __nv_bfloat16;

__device__ __forceinline__ float load(const float* x) { return *x; }
__device__ __forceinline__ float load(const bf16* x) { return __bfloat162float(*x); }
__device__ __forceinline__ void store(float* to, float value) { *to = value; }
__device__ __forceinline__ void store(bf16* to, float value) { *to = __float2bfloat16_rn(value); }

/// Two numbers as bf16, the first in the lower half.
__device__ __forceinline__ std::uint32_t round_pair(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

__device__ __forceinline__ float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0U, value, offset);
  return value;
}
__device__ __forceinline__ float warp_max(float value) {
  for (int offset = 16; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(~0U, value, offset));
  }
  return value;
}

/// The sum over all threads of the block, at most 1,024; every thread gets it. All must call.
__device__ __forceinline__ float block_sum(float value) {
  __shared__ float parts[33];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = (blockDim.x + 31) / 32;
  value = warp_sum(value);
  if (lane == 0) parts[warp] = value;
  __syncthreads();
  if (warp == 0) {
    const float total = warp_sum(lane < warps ? parts[lane] : 0.0F);
    if (lane == 0) parts[32] = total;
  }
  __syncthreads();
  const float total = parts[32];
  __syncthreads();  // before the next call writes
  return total;
}

/// Calls body with a null pointer of the element type of `dtype`, f32 or bf16.
template <class Body>
void with_type(DType dtype, Body&& body) {
  if (dtype == DType::bf16) {
    body(static_cast<bf16*>(nullptr));
  } else {
    body(static_cast<float*>(nullptr));
  }
}

template <class Pointer>
using element = std::remove_pointer_t<Pointer>;

inline unsigned blocks_of(std::int64_t items, std::int64_t each) {
  return static_cast<unsigned>((items + each - 1) / each);
}

}  // namespace troupe::cuda
