// Eight adjacent elements of a row, which a thread reads and writes at once: 16 bytes of bf16.
#pragma once

#include "parallel/device/cuda/device_math.cuh"

namespace troupe::cuda {

constexpr int unit = 8;  // elements

__device__ __forceinline__ void load_unit(const float* from, float (&values)[unit]) {
#pragma unroll
  for (int i = 0; i < unit; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(from + i);
    values[i] = four.x, values[i + 1] = four.y, values[i + 2] = four.z, values[i + 3] = four.w;
  }
}
__device__ __forceinline__ void load_unit(const bf16* from, float (&values)[unit]) {
  const uint4 eight = *reinterpret_cast<const uint4*>(from);
  const auto* pairs = reinterpret_cast<const __nv_bfloat162*>(&eight);
#pragma unroll
  for (int i = 0; i < unit / 2; ++i) {
    const float2 two = __bfloat1622float2(pairs[i]);
    values[2 * i] = two.x, values[2 * i + 1] = two.y;
  }
}
__device__ __forceinline__ void store_unit(float* to, const float (&values)[unit]) {
#pragma unroll
  for (int i = 0; i < unit; i += 4) {
    *reinterpret_cast<float4*>(to + i) =
        make_float4(values[i], values[i + 1], values[i + 2], values[i + 3]);
  }
}
__device__ __forceinline__ void store_unit(bf16* to, const float (&values)[unit]) {
  uint4 eight;
  auto* pairs = reinterpret_cast<__nv_bfloat162*>(&eight);
#pragma unroll
  for (int i = 0; i < unit / 2; ++i) {
    pairs[i] = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
  }
  *reinterpret_cast<uint4*>(to) = eight;
}

}  // namespace troupe::cuda
