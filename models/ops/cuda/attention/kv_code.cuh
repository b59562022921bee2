// Codes of 8 bits in the paged KV cache (KvRowLayout): where they lie on GPUs, numbers to codes and
// codes to numbers.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "parallel/device/dtype.hpp"

namespace troupe::cuda {

/// Where codes lie: pages are [blocks, kv_heads, block_size * (head_dim + 2)] bytes, each of the
/// codes [block_size, head_dim] of keys or values and behind them their scales [block_size] fp16.
struct CodedPages {
  int kv_heads, block_size, head_dim;

  __host__ __device__ std::int64_t page_bytes() const {
    return std::int64_t{block_size} * (head_dim + 2);
  }
  __host__ __device__ std::int64_t page(std::int64_t block, int kv_head) const {
    return (block * kv_heads + kv_head) * page_bytes();
  }
  /// Of the code of a row's first element and of its scale, in a page.
  __host__ __device__ std::int64_t row(int offset) const { return std::int64_t{offset} * head_dim; }
  __host__ __device__ std::int64_t scale(int offset) const {
    return std::int64_t{block_size} * head_dim + 2 * offset;
  }
};

struct Int8Code {
  static constexpr float largest = 127.0F;       ///< as a number
  static constexpr float unit = 1.0F;            ///< a number is widen(code) * unit * scale
  static constexpr float over_published = 1.0F;  ///< by what scales are more than a checkpoint's

  /// The nearest code, ties to even; `inverse` of the scale.
  static __device__ __forceinline__ std::uint8_t narrow(float x, float inverse) {
    const float value = fmaxf(fminf(x * inverse, 127.0F), -127.0F);
    return static_cast<std::uint8_t>(__float2int_rn(value));
  }
  /// Widens four codes to fp16, exactly: the first two, and the others. 1,152 plus a code is a
  /// number of 11 bits, of which a byte is the code.
  static __device__ __forceinline__ void widen(std::uint32_t codes, std::uint32_t& first,
                                               std::uint32_t& second) {
    constexpr std::uint32_t thousands = 0x64646464, offset = 0x64806480;
    const std::uint32_t moved = codes ^ 0x80808080U;
    first = minus(__byte_perm(moved, thousands, 0x4140), offset);
    second = minus(__byte_perm(moved, thousands, 0x4342), offset);
  }

 private:
  static __device__ __forceinline__ std::uint32_t minus(std::uint32_t a, std::uint32_t b) {
    std::uint32_t difference;
    asm("sub.f16x2 %0, %1, %2;" : "=r"(difference) : "r"(a), "r"(b));
    return difference;
  }
};

/// E4M3 times 2^-8, so that scales are in the range of fp16.
struct Fp8Code {
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

template <class T>
inline constexpr bool is_code_type = std::is_same_v<T, Int8Code> || std::is_same_v<T, Fp8Code>;

/// The number of one code, without its row's scale.
template <class Code>
__device__ __forceinline__ float number_of(std::uint8_t code) {
  std::uint32_t first, second;
  Code::widen(code, first, second);
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
  return number > 0.0F ? __fdiv_rn(1.0F, number) : 0.0F;
}

/// Calls body with a null pointer of the type of a cache's codes.
template <class Body>
void with_code(DType stored, Body&& body) {
  if (stored == DType::i8) {
    body(static_cast<Int8Code*>(nullptr));
  } else {
    body(static_cast<Fp8Code*>(nullptr));
  }
}

}  // namespace troupe::cuda
