// The scale of a row of 4-bit codes, found by a warp as models/ops/cpu/kv_store.hpp finds it: the
// same bits, as each sum is made in the same order.
#pragma once

#include "models/ops/cuda/attention/kv_code.cuh"

namespace troupe::cuda {

/// The level nearest to x; of two that are as near, the upper one (Int4Code::narrow).
__device__ __forceinline__ float nearest_level(float x) {
  constexpr Int4Levels levels = int4_steps;
  float level = levels.lowest;
#pragma unroll
  for (int k = 0; k < 15; ++k) {
    if (!(x < levels.boundary[k])) level += levels.step[k];
  }
  return level;
}

/// Sums over the 16 lanes of a half of a warp, all of which get the sum.
__device__ __forceinline__ float sum_of_half_warp(float value) {
#pragma unroll
  for (int lanes = 8; lanes > 0; lanes /= 2) value += __shfl_xor_sync(~0U, value, lanes);
  return value;
}

/// The fp16 nearest to a scale, of those that are finite.
__device__ __forceinline__ __half half_of_scale(float wanted) {
  constexpr float largest = 65504.0F;
  return __float2half_rn(fabsf(wanted) < largest ? wanted : copysignf(largest, wanted));
}

/// The element of the largest magnitude, with its sign; of two the positive one.
template <int count>
__device__ __forceinline__ float farthest_from_zero(const float (&x)[count]) {
  float above = 0.0F, below = 0.0F;
#pragma unroll
  for (const float element : x) {
    above = fmaxf(element, above);
    below = fmaxf(-element, below);
  }
#pragma unroll
  for (int lanes = 8; lanes > 0; lanes /= 2) {
    above = fmaxf(above, __shfl_xor_sync(~0U, above, lanes));
    below = fmaxf(below, __shfl_xor_sync(~0U, below, lanes));
  }
  return above >= below ? above : -below;
}

/// A scale and the squared error of a row rounded with it.
struct Int4Scale {
  __half scale;
  float squared_error;
};

/// Tries three scales: one that makes the farthest element `outermost`, and twice the best for the
/// codes found. A half of a warp calls, whose lane l has the elements l, l + 16, ....
template <int count>
__device__ __forceinline__ Int4Scale best_of_three(const float (&x)[count], float outermost) {
  Int4Scale best{__ushort_as_half(0), INFINITY};
  float wanted = __fdiv_rn(farthest_from_zero(x), outermost);
#pragma unroll 1
  for (int round = 0; round < 3; ++round) {
    const __half scale = half_of_scale(wanted);
    const float factor = __half2float(scale), inverse = inverse_of(scale);
    float error = 0.0F, product = 0.0F, square = 0.0F;
#pragma unroll
    for (const float element : x) {
      const float level = nearest_level(__fmul_rn(element, inverse));
      const float difference = __fmaf_rn(-level, factor, element);
      error = __fmaf_rn(difference, difference, error);
      product = __fmaf_rn(element, level, product);
      square = __fmaf_rn(level, level, square);
    }
    const float squared_error = sum_of_half_warp(error);
    if (squared_error < best.squared_error) best = {scale, squared_error};
    wanted = __fdiv_rn(sum_of_half_warp(product), sum_of_half_warp(square));
  }
  return best;
}

/// The scale of the least squared error among six (Int4Rounding, int4_scale_for), of a row in
/// shared memory: up to 16 * count elements. A whole warp calls; either half tries three.
template <int count>
__device__ __noinline__ __half int4_scale(const float* row, int elements) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float x[count];
#pragma unroll
  for (int i = 0; i < count; ++i) {
    const int element = lane % 16 + 16 * i;
    x[i] = element < elements ? row[element] : 0.0F;
  }
  constexpr Int4Levels levels = int4_steps;
  const Int4Scale own = best_of_three(x, lane < 16 ? levels.lowest : levels.highest);
  const Int4Scale first{__shfl_sync(~0U, own.scale, 0), __shfl_sync(~0U, own.squared_error, 0)};
  const Int4Scale second{__shfl_sync(~0U, own.scale, 16), __shfl_sync(~0U, own.squared_error, 16)};
  return second.squared_error < first.squared_error ? second.scale : first.scale;
}

}  // namespace troupe::cuda
