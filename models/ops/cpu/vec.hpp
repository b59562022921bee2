// Sixteen floats as one value: a zmm register if the including file is compiled for AVX-512, two
// ymm registers otherwise. Kernels are written once on it and give the same bits on both, because
// every operation is lane by lane and reductions have one fixed tree.
//
// Included by the files of one instruction set each (kernels.hpp), which define TROUPE_ISA as a
// namespace of their own: the linker must never merge functions of two instruction sets. For the
// same reason nothing here or in the kernels calls a function of the standard library.
#pragma once

#include <cstdint>

#include <immintrin.h>

#ifndef TROUPE_ISA
#error "define TROUPE_ISA before including a kernel header"
#endif

namespace troupe::TROUPE_ISA {

#define TROUPE_INLINE inline __attribute__((always_inline))

struct F16 {
#ifdef __AVX512F__
  __m512 v;
#else
  __m256 lo, hi;
#endif
};

#ifdef __AVX512F__

TROUPE_INLINE F16 zero() { return {_mm512_setzero_ps()}; }
TROUPE_INLINE F16 broadcast(float x) { return {_mm512_set1_ps(x)}; }
TROUPE_INLINE F16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
TROUPE_INLINE void store(float* p, F16 x) { _mm512_storeu_ps(p, x.v); }
TROUPE_INLINE __mmask16 first_lanes(std::int64_t n) {
  return n >= 16 ? 0xffff : n <= 0 ? 0 : static_cast<__mmask16>((1u << n) - 1);
}
/// Loads the first n lanes; the others are zero and not read.
TROUPE_INLINE F16 load(const float* p, std::int64_t n) {
  return {_mm512_maskz_loadu_ps(first_lanes(n), p)};
}
TROUPE_INLINE void store(float* p, F16 x, std::int64_t n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), x.v);
}
TROUPE_INLINE F16 fma(F16 a, F16 b, F16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
TROUPE_INLINE F16 fnma(F16 a, F16 b, F16 c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
TROUPE_INLINE F16 operator+(F16 a, F16 b) { return {_mm512_add_ps(a.v, b.v)}; }
TROUPE_INLINE F16 operator-(F16 a, F16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
TROUPE_INLINE F16 operator*(F16 a, F16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
TROUPE_INLINE F16 operator/(F16 a, F16 b) { return {_mm512_div_ps(a.v, b.v)}; }
TROUPE_INLINE F16 max(F16 a, F16 b) { return {_mm512_max_ps(a.v, b.v)}; }
TROUPE_INLINE F16 min(F16 a, F16 b) { return {_mm512_min_ps(a.v, b.v)}; }
TROUPE_INLINE F16 round(F16 x) {
  return {_mm512_roundscale_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
/// x * 2^n for integral n with a normal result.
TROUPE_INLINE F16 scale_by_power(F16 x, F16 n) {
  const __m512i shift = _mm512_slli_epi32(_mm512_cvtps_epi32(n.v), 23);
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x.v), shift))};
}
/// Zeroes the lanes of x where a < b.
TROUPE_INLINE F16 zero_where_less(F16 a, F16 b, F16 x) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_NLT_UQ), x.v)};
}
/// Sets lanes n.. to `other`.
TROUPE_INLINE F16 keep_first(F16 x, std::int64_t n, F16 other) {
  return {_mm512_mask_blend_ps(first_lanes(n), other.v, x.v)};
}
TROUPE_INLINE __m256 low_half(F16 x) { return _mm512_castps512_ps256(x.v); }
TROUPE_INLINE __m256 high_half(F16 x) { return _mm512_extractf32x8_ps(x.v, 1); }
/// Loads sixteen consecutive bf16.
TROUPE_INLINE F16 load(const std::uint16_t* p) {
  const __m512i wide =
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
/// Loads sixteen pairs of bf16; a gets the even ones, b the odd ones.
TROUPE_INLINE void load_pairs(const std::uint16_t* p, F16& a, F16& b) {
  const __m512i both = _mm512_loadu_si512(p);
  a.v = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
  b.v = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(-65536)));
}

#else

TROUPE_INLINE F16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
TROUPE_INLINE F16 broadcast(float x) {
  const __m256 v = _mm256_set1_ps(x);
  return {v, v};
}
TROUPE_INLINE F16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
TROUPE_INLINE void store(float* p, F16 x) {
  _mm256_storeu_ps(p, x.lo);
  _mm256_storeu_ps(p + 8, x.hi);
}
TROUPE_INLINE __m256i first_lanes(std::int64_t n) {
  const int count = n <= 0 ? 0 : n >= 8 ? 8 : static_cast<int>(n);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
TROUPE_INLINE F16 load(const float* p, std::int64_t n) {
  return {_mm256_maskload_ps(p, first_lanes(n)), _mm256_maskload_ps(p + 8, first_lanes(n - 8))};
}
TROUPE_INLINE void store(float* p, F16 x, std::int64_t n) {
  _mm256_maskstore_ps(p, first_lanes(n), x.lo);
  _mm256_maskstore_ps(p + 8, first_lanes(n - 8), x.hi);
}
TROUPE_INLINE F16 fma(F16 a, F16 b, F16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
TROUPE_INLINE F16 fnma(F16 a, F16 b, F16 c) {
  return {_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}
TROUPE_INLINE F16 operator+(F16 a, F16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
TROUPE_INLINE F16 operator-(F16 a, F16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
TROUPE_INLINE F16 operator*(F16 a, F16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
TROUPE_INLINE F16 operator/(F16 a, F16 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
TROUPE_INLINE F16 max(F16 a, F16 b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
TROUPE_INLINE F16 min(F16 a, F16 b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
TROUPE_INLINE F16 round(F16 x) {
  constexpr int mode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.lo, mode), _mm256_round_ps(x.hi, mode)};
}
TROUPE_INLINE F16 scale_by_power(F16 x, F16 n) {
  const __m256i lo = _mm256_slli_epi32(_mm256_cvtps_epi32(n.lo), 23);
  const __m256i hi = _mm256_slli_epi32(_mm256_cvtps_epi32(n.hi), 23);
  return {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x.lo), lo)),
          _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x.hi), hi))};
}
TROUPE_INLINE F16 zero_where_less(F16 a, F16 b, F16 x) {
  return {_mm256_and_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_NLT_UQ), x.lo),
          _mm256_and_ps(_mm256_cmp_ps(a.hi, b.hi, _CMP_NLT_UQ), x.hi)};
}
TROUPE_INLINE F16 keep_first(F16 x, std::int64_t n, F16 other) {
  return {_mm256_blendv_ps(other.lo, x.lo, _mm256_castsi256_ps(first_lanes(n))),
          _mm256_blendv_ps(other.hi, x.hi, _mm256_castsi256_ps(first_lanes(n - 8)))};
}
TROUPE_INLINE __m256 low_half(F16 x) { return x.lo; }
TROUPE_INLINE __m256 high_half(F16 x) { return x.hi; }
TROUPE_INLINE __m256 widen(__m128i bf16) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bf16), 16));
}
TROUPE_INLINE F16 load(const std::uint16_t* p) {
  const auto* q = reinterpret_cast<const __m128i*>(p);
  return {widen(_mm_loadu_si128(q)), widen(_mm_loadu_si128(q + 1))};
}
TROUPE_INLINE void load_pairs(const std::uint16_t* p, F16& a, F16& b) {
  const auto* q = reinterpret_cast<const __m256i*>(p);
  const __m256i lo = _mm256_loadu_si256(q), hi = _mm256_loadu_si256(q + 1);
  const __m256i upper = _mm256_set1_epi32(-65536);
  a = {_mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)),
       _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16))};
  b = {_mm256_castsi256_ps(_mm256_and_si256(lo, upper)),
       _mm256_castsi256_ps(_mm256_and_si256(hi, upper))};
}

#endif

/// Loads the first n lanes from bf16; the others are zero and not read.
TROUPE_INLINE F16 load(const std::uint16_t* p, std::int64_t n) {
  std::uint16_t lanes[16] = {};
  for (std::int64_t i = 0; i < 16 && i < n; ++i) lanes[i] = p[i];
  return load(lanes);
}
/// Loads the first n lanes; all of them for n >= 16, then at the cost of a whole load.
template <class Stored>
TROUPE_INLINE F16 load_up_to(const Stored* p, std::int64_t n) {
  return n >= 16 ? load(p) : load(p, n);
}
TROUPE_INLINE void store_up_to(float* p, F16 x, std::int64_t n) {
  if (n >= 16) {
    store(p, x);
  } else {
    store(p, x, n);
  }
}

/// Sums the lanes as the tree (i, i + 8), then (i, i + 4), (i, i + 2), (i, i + 1).
TROUPE_INLINE float reduce_add(F16 x) {
  const __m256 eight = _mm256_add_ps(low_half(x), high_half(x));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
TROUPE_INLINE float reduce_max(F16 x) {
  const __m256 eight = _mm256_max_ps(low_half(x), high_half(x));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

/// Rounds to nearest, ties to even; NaN stays NaN. Same as to_bfloat16.
TROUPE_INLINE std::uint16_t round_to_bf16(float value) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// 2^n * 2^f for integral n in [-126, 127], |f| <= 0.5. 2^f = 1 + f * q(f), q of degree 5
/// interpolating (2^f - 1) / f in the Chebyshev nodes: relative error 5.1e-9 before rounding,
/// about 1 ulp after it. Exact for f = 0.
TROUPE_INLINE F16 exp2_parts(F16 n, F16 f) {
  F16 q = broadcast(0.000154531629F);
  q = fma(q, f, broadcast(0.001339086336F));
  q = fma(q, f, broadcast(0.009618082557F));
  q = fma(q, f, broadcast(0.055503571142F));
  q = fma(q, f, broadcast(0.240226507605F));
  q = fma(q, f, broadcast(0.693147188026F));
  return scale_by_power(fma(q, f, broadcast(1.0F)), n);
}

/// 2^x for x <= 127; 0 below -126.
TROUPE_INLINE F16 exp2(F16 x) {
  const F16 lowest = broadcast(-126.0F);
  const F16 clamped = max(lowest, x);  // a NaN in x is kept
  const F16 n = round(clamped);
  return zero_where_less(x, lowest, exp2_parts(n, clamped - n));
}

/// e^x, x clamped to [-87, 88]. log2(e) in two parts keeps the error near 1 ulp over the range.
TROUPE_INLINE F16 exp(F16 x) {
  const F16 log2e = broadcast(1.44269502F), log2e_rest = broadcast(1.92596299e-8F);
  const F16 clamped = min(broadcast(88.0F), max(broadcast(-87.0F), x));
  const F16 n = round(clamped * log2e);
  const F16 f = fma(clamped, log2e_rest, fma(clamped, log2e, zero() - n));
  return exp2_parts(n, f);
}

}  // namespace troupe::TROUPE_ISA
