// What the KV cache holds, as numbers in registers, for one instruction set (vec.hpp): f32, bf16,
// and codes of 8 bits with fp16 scales (KvRowLayout).
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

template <class Stored>
inline constexpr bool is_code = false;
template <>
inline constexpr bool is_code<Int8Code> = true;
template <>
inline constexpr bool is_code<Fp8Code> = true;

/// Calls use with a value of the type of `stored`'s elements.
template <class Use>
TROUPE_INLINE void with_stored(DType stored, const Use& use) {
  if (stored == DType::f32) {
    use(float());
  } else if (stored == DType::bf16) {
    use(std::uint16_t());
  } else if (stored == DType::i8) {
    use(Int8Code());
  } else {
    use(Fp8Code());
  }
}

/// The first scales of a page, [block_size].
template <class Code>
TROUPE_INLINE std::uint16_t* scales_of_page(const KvRowLayout& layout, Code* page,
                                            std::int64_t block_size) {
  return reinterpret_cast<std::uint16_t*>(page + layout.head_dim * block_size);
}
template <class Code>
TROUPE_INLINE const std::uint16_t* scales_of_page(const KvRowLayout& layout, const Code* page,
                                                  std::int64_t block_size) {
  return reinterpret_cast<const std::uint16_t*>(page + layout.head_dim * block_size);
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

#endif

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
  Code lanes[16] = {};
  for (std::int64_t i = 0; i < 16 && i < n; ++i) lanes[i] = p[i];
  return load(lanes);
}

}  // namespace troupe::TROUPE_ISA
