// Rounding of keys and values to what the KV cache holds, for one instruction set (vec.hpp). A
// row's codes and scale depend on that row alone.
#pragma once

#include "models/ops/cpu/kernels.hpp"
#include "models/ops/cpu/kv_codes.hpp"
#include "models/ops/cpu/vec.hpp"

namespace troupe::TROUPE_ISA {

/// The largest code as a number.
template <class Code>
inline constexpr float largest_code = 127.0F;
template <>
inline constexpr float largest_code<Fp8Code> = 1.75F;  // 448 * 2^-8
/// By what a scale is more than the one that a checkpoint has for the same codes.
template <class Code>
inline constexpr float over_published = 1.0F;
template <>
inline constexpr float over_published<Fp8Code> = 256.0F;

inline float largest_magnitude(const float* x, std::int64_t width) {
  F16 largest = zero();
  for (std::int64_t i = 0; i < width; i += 16) {
    const F16 part = load_up_to(x + i, width - i);
    largest = max(max(part, zero() - part), largest);
  }
  return reduce_max(largest);
}

/// The element of the largest magnitude, with its sign; of two the positive one.
inline float farthest_from_zero(const float* x, std::int64_t width) {
  F16 largest = zero(), lowest = zero();
  for (std::int64_t i = 0; i < width; i += 16) {
    const F16 part = load_up_to(x + i, width - i);
    largest = max(part, largest);
    lowest = max(zero() - part, lowest);
  }
  const float above = reduce_max(largest), below = reduce_max(lowest);
  return above >= below ? above : -below;
}

/// Sums steps[k] over the codes k, from 1, that are not above the nearest one to x; of two as near
/// the upper.
template <class Steps>
TROUPE_INLINE F16 sum_of_steps(F16 x, float first, const Steps& steps) {
  F16 sum = broadcast(first);
#pragma GCC unroll 15
  for (int k = 1; k < 16; ++k) {
    const float boundary = 0.5F * static_cast<float>(int4_levels[k - 1] + int4_levels[k]);
    sum = sum + zero_where_less(x, broadcast(boundary), broadcast(steps(k)));
  }
  return sum;
}
TROUPE_INLINE F16 nearest_level(F16 x) {
  return sum_of_steps(x, int4_levels[0], [](int k) {
    return static_cast<float>(int4_levels[k] - int4_levels[k - 1]);
  });
}
TROUPE_INLINE F16 nearest_code(F16 x) {
  return sum_of_steps(x, 0.0F, [](int) { return 1.0F; });
}

inline float inverse_of(float scale) { return scale != 0.0F ? 1.0F / scale : 0.0F; }

/// The fp16 nearest to a scale, of those that are finite.
inline std::uint16_t half_of_scale(float wanted) {
  constexpr float largest = 65504.0F;
  return _cvtss_sh(
      __builtin_fabsf(wanted) < largest ? wanted : __builtin_copysignf(largest, wanted),
      _MM_FROUND_TO_NEAREST_INT);
}

/// The result of rounding a row to int4_levels times a scale.
struct Int4Rounding {
  float squared_error;
  float better_scale;  ///< that of the least squared error for the same codes; may be no number
};
inline Int4Rounding round_to_int4(const float* x, std::int64_t width, float scale) {
  const F16 factor = broadcast(scale), inverse = broadcast(inverse_of(scale));
  F16 error = zero(), product = zero(), square = zero();
  for (std::int64_t i = 0; i < width; i += 16) {
    const F16 part = load_up_to(x + i, width - i);
    const F16 level = nearest_level(part * inverse);
    const F16 difference = fnma(level, factor, part);
    error = fma(difference, difference, error);
    product = fma(part, level, product);
    square = fma(level, level, square);
  }
  return {reduce_add(error), reduce_add(product) / reduce_add(square)};
}

/// The bits of the scale of the least squared error among a few: those that make the number
/// farthest from zero either outermost level, and after each twice the best scale for the codes
/// found. On normal numbers the squared error is 6 % above that of the best of 200 scales.
inline std::uint16_t int4_scale_for(const float* x, std::int64_t width) {
  const float farthest = farthest_from_zero(x, width);
  std::uint16_t best = 0;
  float least = __builtin_inff();
  for (const int outermost : {0, 15}) {
    float wanted = farthest / static_cast<float>(int4_levels[outermost]);
    for (int round = 0; round < 3; ++round) {
      const std::uint16_t bits = half_of_scale(wanted);
      const Int4Rounding found = round_to_int4(x, width, _cvtsh_ss(bits));
      if (found.squared_error < least) {
        least = found.squared_error;
        best = bits;
      }
      wanted = found.better_scale;
    }
  }
  return best;
}

/// The bits of the scale for the elements of a row; `fixed` of a checkpoint counts if it is not 0.
template <class Code>
std::uint16_t scale_for(const float* x, std::int64_t width, float fixed) {
  if constexpr (numbers_in<Code> == 2) return int4_scale_for(x, width);
  return half_of_scale(fixed > 0.0F ? fixed * over_published<Code>
                                    : largest_magnitude(x, width) / largest_code<Code>);
}

/// The nearest code, ties to even; `inverse` of the scale.
TROUPE_INLINE void narrow(float x, float inverse, Int8Code& code) {
  float value = x * inverse;
  value = value < 127.0F ? value : 127.0F;
  value = value > -127.0F ? value : -127.0F;
  code.bits = static_cast<std::int8_t>(_mm_cvtss_si32(_mm_set_ss(value)));
}
TROUPE_INLINE void narrow(float x, float inverse, Fp8Code& code) {
  const float value = x * inverse * 256.0F;
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  const std::uint32_t sign = bits >> 31 << 7;
  float magnitude = __builtin_fabsf(value);
  magnitude = magnitude < 448.0F ? magnitude : 448.0F;
  if (magnitude < 0x1p-6F) {  // multiples of 2^-9
    const int steps = _mm_cvtss_si32(_mm_set_ss(magnitude * 0x1p9F));
    code.bits = static_cast<std::uint8_t>(sign | static_cast<std::uint32_t>(steps));
    return;
  }
  __builtin_memcpy(&bits, &magnitude, sizeof bits);
  bits += 0x7FFFFu + ((bits >> 20) & 1u);  // keeps 3 bits of fraction; a carry goes to the exponent
  code.bits = static_cast<std::uint8_t>(sign | ((bits >> 20) - ((127u - 7u) << 3)));
}

/// Up to sixteen numbers as pairs of the nearest codes.
TROUPE_INLINE void narrow(const float* x, std::int64_t n, float inverse, Int4Pair* pairs,
                          std::int64_t stride) {
  float codes[16];
  store(codes, nearest_code(load_up_to(x, n) * broadcast(inverse)));
  for (std::int64_t i = 0; i < 16 && i < n; i += 2) {
    const int high = static_cast<int>(codes[i + 1]) << 4;
    pairs[i / 2 * stride].bits = static_cast<std::uint8_t>(high | static_cast<int>(codes[i]));
  }
}

/// Writes the numbers to codes that lie `stride` apart, and their scale.
template <class Code>
void store_codes(const float* x, std::int64_t width, float fixed, Code* codes, std::int64_t stride,
                 std::uint16_t* scale) {
  *scale = scale_for<Code>(x, width, fixed);
  const float inverse = inverse_of(_cvtsh_ss(*scale));
  if constexpr (numbers_in<Code> == 2) {
    for (std::int64_t i = 0; i < width; i += 16) {
      narrow(x + i, width - i, inverse, codes + i / 2 * stride, stride);
    }
  } else {
    for (std::int64_t i = 0; i < width; ++i) narrow(x[i], inverse, codes[i * stride]);
  }
}

TROUPE_INLINE void store_numbers(const float* x, std::int64_t width, float* to,
                                 std::int64_t stride) {
  for (std::int64_t i = 0; i < width; ++i) to[i * stride] = x[i];
}
TROUPE_INLINE void store_numbers(const float* x, std::int64_t width, std::uint16_t* to,
                                 std::int64_t stride) {
  for (std::int64_t i = 0; i < width; ++i) to[i * stride] = round_to_bf16(x[i]);
}

/// Writes elements [begin, end) of a key, which have one scale.
template <class Stored>
void store_key_part(const KvRowLayout& layout, Stored* page, std::int64_t offset,
                    std::int64_t block_size, std::int64_t begin, std::int64_t end, const float* x,
                    [[maybe_unused]] float fixed_scale) {
  Stored* const to = page + begin / numbers_in<Stored> * block_size + offset;
  if constexpr (is_code<Stored>) {
    const std::int64_t scale = begin < layout.first_part ? 0 : block_size;
    store_codes(x, end - begin, fixed_scale, to, block_size,
                scales_of_page(layout, page, block_size) + scale + offset);
  } else {
    store_numbers(x, end - begin, to, block_size);
  }
}

template <class Stored>
void store_value(const KvRowLayout& layout, Stored* page, std::int64_t offset,
                 [[maybe_unused]] std::int64_t block_size, const float* x,
                 [[maybe_unused]] float fixed_scale) {
  Stored* const to = page + offset * layout.elements;
  if constexpr (is_code<Stored>) {
    store_codes(x, layout.head_dim, fixed_scale, to, 1,
                scales_of_page(layout, page, block_size) + offset);
  } else {
    store_numbers(x, layout.head_dim, to, 1);
  }
}

template <class Stored>
void load_key(const KeyPartJob& job) {
  auto* const page = static_cast<Stored*>(job.page);
  float scale = 1.0F;
  if constexpr (is_code<Stored>) {
    const std::int64_t row = job.begin < job.layout.first_part ? 0 : job.block_size;
    scale = _cvtsh_ss(scales_of_page(job.layout, page, job.block_size)[row + job.offset]);
  }
  for (std::int64_t d = job.begin; d < job.layout.head_dim; ++d) {
    constexpr int parts = numbers_in<Stored>;
    float numbers[16];
    store(numbers, load(page + d / parts * job.block_size + job.offset, parts));
    const float number = numbers[d % parts];
    job.elements[d - job.begin] = is_code<Stored> ? number * scale : number;
  }
}
inline void load_key(const KeyPartJob& job) {
  with_stored(job.layout.stored, [&](auto stored) { load_key<decltype(stored)>(job); });
}

inline void store_key(const KeyPartJob& job) {
  with_stored(job.layout.stored, [&](auto stored) {
    store_key_part(job.layout, static_cast<decltype(stored)*>(job.page), job.offset, job.block_size,
                   job.begin, job.layout.head_dim, job.elements, 0.0F);
  });
}

}  // namespace troupe::TROUPE_ISA
