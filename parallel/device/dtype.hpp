#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/base/result.hpp"

namespace troupe {

/// Element types of tensors, in memory and in checkpoints. An i4x2 is two numbers of 4 bits.
enum class DType : std::uint8_t { f32, bf16, f16, i32, i64, u8, i8, f8_e4m3, i4x2 };

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::i64:
      return 8;
    case DType::u8:
    case DType::i8:
    case DType::f8_e4m3:
    case DType::i4x2:
      return 1;
  }
  return 0;
}

/// "f32", "bf16", ...
constexpr std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
    case DType::u8:
      return "u8";
    case DType::i8:
      return "int8";
    case DType::f8_e4m3:
      return "fp8_e4m3";
    case DType::i4x2:
      return "int4";
  }
  return "unknown";
}

/// True for codes of 8 or 4 bits, which are numbers only together with a scale.
constexpr bool is_code(DType dtype) {
  return dtype == DType::i8 || dtype == DType::f8_e4m3 || dtype == DType::i4x2;
}

/// The upper half of an fp32: 8 bits of exponent, 7 of fraction. Storage only; compute in float.
struct BFloat16 {
  std::uint16_t bits = 0;
};
static_assert(sizeof(BFloat16) == 2);

/// Exact.
constexpr float to_float(BFloat16 value) {
  return std::bit_cast<float>(std::uint32_t{value.bits} << 16);
}
/// Round to nearest, ties to even; NaN stays NaN.
constexpr BFloat16 to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t nan = (bits >> 16) | 0x0040U;  // keeps it a NaN after truncation
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
  return {static_cast<std::uint16_t>(is_nan ? nan : rounded)};
}
/// IEEE binary16 to fp32, exact (subnormals included).
float half_to_float(std::uint16_t bits);

/// The DType of a C++ element type: `dtype_of<float> == DType::f32`.
template <class T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "no DType for this element type");
  return DType::u8;
}();
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<BFloat16> = DType::bf16;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::i64;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::u8;

}  // namespace troupe
