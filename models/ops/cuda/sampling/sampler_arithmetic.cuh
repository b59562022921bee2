// The arithmetic of models/sampler/sampler.cpp, bit for bit: the same additions and multiplications
// in the same order, none contracted. Sums of weights are integers, so their order does not matter.
#pragma once

#include <cstdint>

namespace troupe::cuda {

constexpr float greedy_below = 1e-5F;

/// e^x for x <= 0: sampler.cpp's exp_negative.
__device__ __forceinline__ float exp_negative(float x) {
  const float shifted = __fadd_rn(__fmul_rn(x, 1.44269504F), 12582912.0F);
  const float n = __fadd_rn(shifted, -12582912.0F);
  const float r =
      __fadd_rn(__fadd_rn(x, -__fmul_rn(n, 0.693359375F)), -__fmul_rn(n, -2.12194440e-4F));
  constexpr float factors[] = {1.0F / 720, 1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1.0F, 1.0F};
  float p = 1.0F / 5040;
#pragma unroll
  for (const float factor : factors) p = __fadd_rn(__fmul_rn(p, r), factor);
  const std::uint32_t bits = __float_as_uint(p) + (__float_as_uint(shifted) << 23);
  const std::int32_t magnitude = __float_as_int(x) & 0x7fffffff;
  return magnitude > __float_as_int(87.0F) ? 0.0F : __uint_as_float(bits);
}

/// e^((logit - max) * scale).
__device__ __forceinline__ float weight_of(float logit, float max, float scale) {
  return exp_negative(__fmul_rn(__fadd_rn(logit, -max), scale));
}

/// A weight is `digits` (at most 2^24) << shift in units of 2^-44, rounded to nearest. The shift
/// follows from the weight's leading bits.
__device__ __forceinline__ int shift_of(std::uint32_t exponent) {
  return max(static_cast<int>(exponent) - 106, 0);
}
__device__ __forceinline__ std::uint32_t digits_of(float weight) {
  const std::uint32_t bits = __float_as_uint(weight);
  const std::uint32_t mantissa = (bits & 0x7fffff) | 0x800000;
  return bits >> 23 >= 106 ? mantissa : __float2uint_rn(weight * 0x1p44F);
}
__device__ __forceinline__ std::uint64_t whole(float weight) {
  return static_cast<std::uint64_t>(digits_of(weight)) << shift_of(__float_as_uint(weight) >> 23);
}

/// top_p keeps the smallest sum of weights that reaches this.
__device__ __forceinline__ std::uint64_t limit_of(float top_p, std::uint64_t total) {
  const double product = __dmul_rn(static_cast<double>(top_p), __ull2double_rn(total));
  return max(__double2ull_rz(ceil(product)), 1ULL);
}

/// Maps floats to unsigned integers in the same order.
__device__ __forceinline__ std::uint32_t ordered(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  return bits ^ ((bits >> 31) != 0 ? 0xffffffffU : 0x80000000U);
}
__device__ __forceinline__ float from_ordered(std::uint32_t key) {
  return __uint_as_float(key ^ ((key >> 31) != 0 ? 0x80000000U : 0xffffffffU));
}

/// Philox4x32-10 as in models/sampler/philox.hpp; its first two words.
__device__ inline std::uint64_t random_bits(std::uint64_t seed, std::uint64_t position,
                                            std::uint32_t choice) {
  std::uint32_t c0 = static_cast<std::uint32_t>(position);
  std::uint32_t c1 = static_cast<std::uint32_t>(position >> 32), c2 = choice, c3 = 0;
  std::uint32_t k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t first = std::uint64_t{0xD2511F53U} * c0;
    const std::uint64_t second = std::uint64_t{0xCD9E8D57U} * c2;
    c0 = static_cast<std::uint32_t>(second >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(second);
    c2 = static_cast<std::uint32_t>(first >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(first);
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return std::uint64_t{c0} << 32 | c1;
}

}  // namespace troupe::cuda
