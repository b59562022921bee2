// Codes of 8 or 4 bits in the paged KV cache (KvRowLayout): where they lie on GPUs, numbers to
// codes and codes to numbers.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "models/ops/kv_row_layout.hpp"
#include "parallel/device/dtype.hpp"

namespace troupe::cuda {

/// The layout of a cache's keys, or of its values, in codes: [blocks, kv_heads] pages, those of
/// keys and of values by turns, so that both of a KV head are one piece of memory. A page has a row
/// of codes for each position, [block_size, row_bytes], and behind all rows their scales,
/// [block_size] fp16. A row has the codes of a head in the order of its elements: of 8 bits one a
/// byte, of 4 bits two, that of the even element in the lower half. Rows are as long as their
/// codes, so that pages of keys are longer than those of values where only keys have residuals
/// (KvResidual).
struct CodedPages {
  int kv_heads, block_size;
  int row_bytes, other_row_bytes;  ///< of the pages between these: of values, or of keys

  /// From a page to that of the next KV head.
  __host__ __device__ std::int64_t pitch() const {
    return std::int64_t{block_size} * (row_bytes + other_row_bytes + 4);
  }
  __host__ __device__ std::int64_t page(std::int64_t block, int kv_head) const {
    return (block * kv_heads + kv_head) * pitch();
  }
  /// Offsets in a page: of a position's row, and of its scale.
  __host__ __device__ std::int64_t row(int offset) const {
    return std::int64_t{offset} * row_bytes;
  }
  __host__ __device__ std::int64_t scale(int offset) const {
    return std::int64_t{block_size} * row_bytes + 2 * offset;
  }
};

/// Widens bytes of 128 plus a number to fp16, exactly: the first two, and the others. 1,024 plus
/// such a byte is a number of 11 bits, of which the byte is the lowest 8.
__device__ __forceinline__ void widen_bytes(std::uint32_t bytes, std::uint32_t& first,
                                            std::uint32_t& second) {
  constexpr std::uint32_t thousands = 0x64646464, offset = 0x64806480;
  const auto minus_offset = [](std::uint32_t pair) {
    std::uint32_t difference;
    asm("sub.f16x2 %0, %1, %2;" : "=r"(difference) : "r"(pair), "r"(offset));
    return difference;
  };
  first = minus_offset(__byte_perm(bytes, thousands, 0x4140));
  second = minus_offset(__byte_perm(bytes, thousands, 0x4342));
}

// Each kind of codes has `in_byte` codes in a byte, and two functions. narrow() makes a number, of
// which `inverse` is that of the row's scale, the nearest code. widen() makes the first four codes
// of a word numbers in fp16, exactly: the first two, and the others.

struct Int8Code {
  static constexpr int in_byte = 1;
  static constexpr float largest = 127.0F;       ///< as a number
  static constexpr float unit = 1.0F;            ///< a number is widen(code) * unit * scale
  static constexpr float over_published = 1.0F;  ///< by what scales are more than a checkpoint's

  /// Ties to even.
  static __device__ __forceinline__ std::uint8_t narrow(float x, float inverse) {
    const float value = fmaxf(fminf(x * inverse, 127.0F), -127.0F);
    return static_cast<std::uint8_t>(__float2int_rn(value));
  }
  static __device__ __forceinline__ void widen(std::uint32_t codes, std::uint32_t& first,
                                               std::uint32_t& second) {
    widen_bytes(codes ^ 0x80808080U, first, second);
  }
};

/// E4M3 times 2^-8, so that scales are in the range of fp16.
struct Fp8Code {
  static constexpr int in_byte = 1;
  static constexpr float largest = 1.75F;
  static constexpr float unit = 0x1p-8F;
  static constexpr float over_published = 256.0F;

  static __device__ __forceinline__ std::uint8_t narrow(float x, float inverse) {
    return __nv_cvt_float_to_fp8(x * inverse * 256.0F, __NV_SATFINITE, __NV_E4M3);
  }
  static __device__ __forceinline__ void widen(std::uint32_t codes, std::uint32_t& first,
                                               std::uint32_t& second) {
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, low;\ncvt.rn.f16x2.e4m3x2 %1, high;\n}\n"
        : "=r"(first), "=r"(second)
        : "r"(codes));
  }
};

/// int4_levels, for code that takes steps from the lowest, and to look them up.
struct Int4Levels {
  float lowest = int4_levels[0], highest = int4_levels[15];
  float boundary[15] = {};           ///< the k-th is half way from level k to level k + 1
  float step[15] = {};               ///< the k-th leads from level k to level k + 1
  std::uint32_t magnitudes[4] = {};  ///< of four levels each, a byte for one
};
/// Device code copies it to a constant of its own, as it has no other access to the host's.
inline constexpr Int4Levels int4_steps = [] {
  Int4Levels levels;
  for (int k = 0; k < 15; ++k) {
    levels.boundary[k] = 0.5F * static_cast<float>(int4_levels[k] + int4_levels[k + 1]);
    levels.step[k] = static_cast<float>(int4_levels[k + 1] - int4_levels[k]);
  }
  for (int k = 0; k < 16; ++k) {
    const int magnitude = int4_levels[k] < 0 ? -int4_levels[k] : int4_levels[k];
    levels.magnitudes[k / 4] |= static_cast<std::uint32_t>(magnitude) << (8 * (k % 4));
  }
  return levels;
}();

/// Of int4_levels. Scales are those of int4_scale().
struct Int4Code {
  static constexpr int in_byte = 2;
  static constexpr float unit = 1.0F;

  /// The code of the nearest level; of two that are as near, the upper one's.
  static __device__ __forceinline__ std::uint8_t narrow(float x, float inverse) {
    constexpr Int4Levels levels = int4_steps;
    const float value = __fmul_rn(x, inverse);
    int code = 0;
#pragma unroll
    for (int k = 0; k < 15; ++k) code += value < levels.boundary[k] ? 0 : 1;
    return static_cast<std::uint8_t>(code);
  }
  /// A permutation looks up eight bytes by three bits. Where the fourth is 1 it repeats the byte's
  /// sign, which is 0 here: so one half of the levels or the other is 0.
  static __device__ __forceinline__ void widen(std::uint32_t codes, std::uint32_t& first,
                                               std::uint32_t& second) {
    constexpr Int4Levels levels = int4_steps;
    const std::uint32_t below = looked_up(levels.magnitudes[0], levels.magnitudes[1], codes);
    const std::uint32_t above =
        looked_up(levels.magnitudes[2], levels.magnitudes[3], codes ^ 0x8888U);
    widen_bytes(above + 0x80808080U - below, first, second);
  }

 private:
  /// For four codes; unlike __byte_perm it takes the fourth bit for what it is.
  static __device__ __forceinline__ std::uint32_t looked_up(std::uint32_t low, std::uint32_t high,
                                                            std::uint32_t codes) {
    std::uint32_t bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(codes));
    return bytes;
  }
};

template <class T>
inline constexpr bool is_code_type =
    std::is_same_v<T, Int8Code> || std::is_same_v<T, Fp8Code> || std::is_same_v<T, Int4Code>;

/// The i-th four codes of words, for widen().
template <class Code>
__device__ __forceinline__ std::uint32_t four_codes(const std::uint32_t* words, int i) {
  return Code::in_byte == 1 ? words[i] : words[i / 2] >> (16 * (i % 2));
}

/// The number of code `index` of a row, without the row's scale.
template <class Code>
__device__ __forceinline__ float number_of(const std::uint8_t* row, int index) {
  const unsigned byte = row[index / Code::in_byte];
  std::uint32_t first, second;
  Code::widen(byte >> (4 * (index % Code::in_byte)), first, second);
  return __half2float(__ushort_as_half(static_cast<std::uint16_t>(first))) * Code::unit;
}

/// The scale of a row whose largest magnitude is `largest`; a checkpoint's, `fixed`, counts if it
/// is not 0.
template <class Code>
__device__ __forceinline__ __half row_scale(float largest, float fixed) {
  const float wanted =
      fixed > 0.0F ? fixed * Code::over_published : __fdiv_rn(largest, Code::largest);
  return __float2half_rn(fminf(wanted, 65504.0F));
}

/// By what the numbers of a row are multiplied before they become codes.
__device__ __forceinline__ float inverse_of(__half scale) {
  const float number = __half2float(scale);
  return number != 0.0F ? __fdiv_rn(1.0F, number) : 0.0F;
}

/// Calls body with null pointers of the types of a cache's codes: of keys, and of values.
template <class Body>
void with_codes(DType keys, DType values, Body&& body) {
  constexpr Int8Code* int8 = nullptr;
  constexpr Int4Code* int4 = nullptr;
  constexpr Fp8Code* fp8 = nullptr;
  if (keys == DType::i8 && values == DType::i4x2) {
    body(int8, int4);
  } else if (keys == DType::i8) {
    body(int8, int8);
  } else if (keys == DType::i4x2) {
    body(int4, int4);
  } else {
    body(fp8, fp8);
  }
}

}  // namespace troupe::cuda
