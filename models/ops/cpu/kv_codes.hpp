// What the KV cache holds, as numbers in registers, for one instruction set (vec.hpp): f32, bf16,
// and codes of 8 or 4 bits with fp16 scales (KvRowLayout).
#pragma once

#include "models/ops/cpu/vec.hpp"
#include "models/ops/kv_row_layout.hpp"

namespace troupe::TROUPE_ISA {

struct Int8Code {
  std::int8_t bits;
};
/// E4M3: sign, 4 bits of exponent, 3 of fraction.
struct Fp8Code {
  std::uint8_t bits;
};

/// Codes of two elements, the even one's in the lower half; of int4_levels.
struct Int4Pair {
  std::uint8_t bits;
};

template <class Stored>
inline constexpr bool is_code = false;
template <>
inline constexpr bool is_code<Int8Code> = true;
template <>
inline constexpr bool is_code<Fp8Code> = true;
template <>
inline constexpr bool is_code<Int4Pair> = true;

/// The numbers in one `Stored`.
template <class Stored>
inline constexpr int numbers_in = 1;
template <>
inline constexpr int numbers_in<Int4Pair> = 2;

/// Calls use with a value of the type of `stored`'s elements.
template <class Use>
TROUPE_INLINE void with_stored(DType stored, const Use& use) {
  if (stored == DType::f32) {
    use(float());
  } else if (stored == DType::bf16) {
    use(std::uint16_t());
  } else if (stored == DType::i8) {
    use(Int8Code());
  } else if (stored == DType::i4x2) {
    use(Int4Pair());
  } else {
    use(Fp8Code());
  }
}
/// Calls use with values of the types of the elements of keys and of values: the same but for
/// residuals of keys (KvResidual).
template <class Use>
TROUPE_INLINE void with_stored(DType keys, DType values, const Use& use) {
  if (keys == DType::i8 && values == DType::i4x2) {
    use(Int8Code(), Int4Pair());
  } else {
    with_stored(keys, [&](auto stored) { use(stored, stored); });
  }
}

/// The first scales of a page, [block_size].
template <class Code>
TROUPE_INLINE std::uint16_t* scales_of_page(const KvRowLayout& layout, Code* page,
                                            std::int64_t block_size) {
  return reinterpret_cast<std::uint16_t*>(page + layout.elements * block_size);
}
template <class Code>
TROUPE_INLINE const std::uint16_t* scales_of_page(const KvRowLayout& layout, const Code* page,
                                                  std::int64_t block_size) {
  return reinterpret_cast<const std::uint16_t*>(page + layout.elements * block_size);
}

#ifdef __AVX512F__

/// Loads sixteen consecutive fp16.
TROUPE_INLINE F16 load_half(const std::uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
TROUPE_INLINE F16 load(const Int8Code* p) {
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes))};
}
/// The numbers of codes, of which it looks at the lowest 4 bits.
TROUPE_INLINE F16 numbers_of(__m512i codes) {
  const __m128i levels = _mm_loadu_si128(reinterpret_cast<const __m128i*>(int4_levels));
  return {_mm512_permutexvar_ps(codes, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(levels)))};
}
/// Loads the first, or the second, number of sixteen pairs.
TROUPE_INLINE F16 load_half_of(const Int4Pair* p, int which) {
  const __m512i pairs = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return numbers_of(which == 0 ? pairs : _mm512_srli_epi32(pairs, 4));
}

#else

TROUPE_INLINE F16 load_half(const std::uint16_t* p) {
  const auto* q = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}
TROUPE_INLINE F16 load(const Int8Code* p) {
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(codes, 8)))};
}
TROUPE_INLINE F16 numbers_of(__m128i codes) {
  const __m128i levels = _mm_loadu_si128(reinterpret_cast<const __m128i*>(int4_levels));
  const __m128i numbers = _mm_shuffle_epi8(levels, _mm_and_si128(codes, _mm_set1_epi8(15)));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(numbers)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(numbers, 8)))};
}
TROUPE_INLINE F16 load_half_of(const Int4Pair* p, int which) {
  const __m128i pairs = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return numbers_of(which == 0 ? pairs : _mm_srli_epi16(pairs, 4));
}

#endif

/// Loads the sixteen numbers of eight pairs: each byte's halves become two bytes.
TROUPE_INLINE F16 load(const Int4Pair* p) {
  const __m128i words = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m128i codes = _mm_or_si128(words, _mm_slli_epi16(words, 4));
#ifdef __AVX512F__
  return numbers_of(_mm512_cvtepu8_epi32(codes));
#else
  return numbers_of(codes);
#endif
}

/// Loads number `which` of the numbers_in of sixteen consecutive elements.
template <class Stored>
TROUPE_INLINE F16 load_one_of(const Stored* p, [[maybe_unused]] int which) {
  if constexpr (numbers_in<Stored> == 2) {
    return load_half_of(p, which);
  } else {
    return load(p);
  }
}

/// Loads codes as E4M3 times 2^-8: their fields moved to those of fp16, which hold E4M3's numbers
/// without a leading one, too. With the sign extended to 16 bits, the shift leaves it in two
/// places.
TROUPE_INLINE F16 load(const Fp8Code* p) {
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m256i moved = _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7),
                                         _mm256_set1_epi16(static_cast<short>(0xBFFF)));
#ifdef __AVX512F__
  return {_mm512_cvtph_ps(moved)};
#else
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(moved)),
          _mm256_cvtph_ps(_mm256_extracti128_si256(moved, 1))};
#endif
}

/// Loads the first n lanes; the others are zero and not read.
template <class Code>
  requires is_code<Code>
TROUPE_INLINE F16 load(const Code* p, std::int64_t n) {
  constexpr int parts = numbers_in<Code>;
  Code lanes[16 / parts];
  for (Code& lane : lanes) lane.bits = parts == 2 ? 0x88 : 0;
  for (std::int64_t i = 0; i < 16 / parts && i < n / parts; ++i) lanes[i] = p[i];
  return load(lanes);
}

}  // namespace troupe::TROUPE_ISA
