// Codes as sixteen floats (vec.hpp): one element of as many columns of a panel.
#pragma once

#include "models/ops/cpu/kernels.hpp"
#include "models/ops/cpu/kv_codes.hpp"
#include "models/ops/cpu/vec.hpp"

namespace troupe::TROUPE_ISA {

/// Sixteen bytes of codes; E4M3 as 2^-8 of the numbers.
template <CodeKind kind>
TROUPE_INLINE F16 load_bytes(const std::uint8_t* p) {
  if constexpr (kind == CodeKind::e4m3) {
    return load(reinterpret_cast<const Fp8Code*>(p));
  } else {
    return load(reinterpret_cast<const Int8Code*>(p));
  }
}

/// Sixteen words of eight 4-bit codes each.
struct Nibbles {
#ifdef __AVX512F__
  __m512i v;
#else
  __m256i lo, hi;
#endif
};

#ifdef __AVX512F__

TROUPE_INLINE Nibbles load_nibbles(const std::uint8_t* p) { return {_mm512_loadu_si512(p)}; }

/// The lowest codes; the next ones become the lowest. The permutation looks at 4 bits only.
template <CodeKind kind>
TROUPE_INLINE F16 next_of(Nibbles& words) {
  const __m512 numbers =
      kind == CodeKind::int4
          ? _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7)
          : _mm512_setr_ps(0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6);
  const F16 next{_mm512_permutexvar_ps(words.v, numbers)};
  words.v = _mm512_srli_epi32(words.v, 4);
  return next;
}

#else

TROUPE_INLINE Nibbles load_nibbles(const std::uint8_t* p) {
  const auto* q = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}

template <CodeKind kind>
TROUPE_INLINE __m256 lowest_of(__m256i words) {
  if constexpr (kind == CodeKind::int4) {
    const __m256i codes = _mm256_and_si256(words, _mm256_set1_epi32(15));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(codes, _mm256_set1_epi32(8)));
  } else {  // the permutation looks at 3 bits, the fourth is the sign
    const __m256 magnitudes = _mm256_setr_ps(0, 0.5F, 1, 1.5F, 2, 3, 4, 6);
    const __m256i signs =
        _mm256_and_si256(_mm256_slli_epi32(words, 28), _mm256_set1_epi32(INT32_MIN));
    return _mm256_or_ps(_mm256_permutevar8x32_ps(magnitudes, words), _mm256_castsi256_ps(signs));
  }
}

template <CodeKind kind>
TROUPE_INLINE F16 next_of(Nibbles& words) {
  const F16 next{lowest_of<kind>(words.lo), lowest_of<kind>(words.hi)};
  words = {_mm256_srli_epi32(words.lo, 4), _mm256_srli_epi32(words.hi, 4)};
  return next;
}

#endif

}  // namespace troupe::TROUPE_ISA
