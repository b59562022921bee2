#include "models/quantize/code_grid.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <variant>

#include "models/ops/fp8_rows.hpp"
#include "models/ops/weight_format.hpp"

namespace troupe {
namespace {

/// The magnitudes of E2M1 (OCP Microscaling Formats Specification 1.0, 2023).
constexpr std::array<float, 8> e2m1_magnitudes = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
/// A magnitude up to the i-th, or below it where i is odd, has a code of at most i: ties go to even
/// codes.
constexpr std::array<float, 7> e2m1_bounds = {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F};

constexpr float e2m1_max = e2m1_magnitudes.back();
constexpr float smallest_e4m3 = 0x1p-9F;
constexpr float smallest_scale = 0x1p-100F;
constexpr float smallest_half_scale = 0x1p-14F;

std::uint8_t float_to_e2m1(float number) {
  const float magnitude = std::abs(number);
  std::uint8_t code = 0;
  while (code < e2m1_bounds.size() &&
         (code % 2 == 0 ? magnitude > e2m1_bounds[code] : magnitude >= e2m1_bounds[code])) {
    ++code;
  }
  return std::signbit(number) && code != 0 ? code | 8 : code;
}

const std::array<float, 256>& e4m3_numbers() {
  static const std::array<float, 256> numbers = [] {
    std::array<float, 256> all{};
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] = e4m3_to_float(static_cast<std::uint8_t>(i));
    }
    return all;
  }();
  return numbers;
}

}  // namespace

std::string_view to_string(QuantizationScheme scheme) {
  constexpr std::array<std::string_view, 5> names = {"fp8", "int8", "w4a16", "mxfp4", "nvfp4"};
  return names[static_cast<std::size_t>(scheme)];
}

std::string_view to_string(SparsityStructure structure) {
  constexpr std::array<std::string_view, 2> names = {"sparse-2:4", "sparse-rows"};
  return names[static_cast<std::size_t>(structure)];
}

std::string_view to_string(KvCacheScheme scheme) {
  constexpr std::array<std::string_view, 1> names = {"kv-fp8"};
  return names[static_cast<std::size_t>(scheme)];
}

std::string_view to_string(const CompressionScheme& scheme) {
  return std::visit([](auto of_a_kind) { return to_string(of_a_kind); }, scheme);
}

std::string_view to_string(QuantizationMethod method) {
  constexpr std::array<std::string_view, 6> names = {"rtn",         "gptq",      "awq",
                                                     "smoothquant", "magnitude", "wanda"};
  return names[static_cast<std::size_t>(method)];
}

std::uint16_t float_to_half(float number) {
  constexpr float largest = 65504.0F, smallest_normal = 0x1p-14F;
  const float magnitude = std::min(std::abs(number), largest);
  const std::uint16_t sign = std::signbit(number) ? 0x8000 : 0;
  if (magnitude < smallest_normal) {
    return sign | static_cast<std::uint16_t>(std::nearbyint(magnitude * 0x1p24F));
  }
  auto bits = std::bit_cast<std::uint32_t>(magnitude);
  bits += 0xFFFU + (bits >> 13 & 1U);
  constexpr std::uint32_t bias_difference = 127 - 15;
  return sign | static_cast<std::uint16_t>((bits >> 13) - (bias_difference << 10));
}

CodeGrid CodeGrid::with_range(float absmax) const {
  CodeGrid grid = *this;
  if (has_tensor_scale(scheme_) && absmax > smallest_scale) {
    grid.tensor_divisor_ = e4m3_max * e2m1_max / absmax;
  }
  return grid;
}

float CodeGrid::scale_for(float absmax) const {
  if (scheme_ == QuantizationScheme::nvfp4) {
    const float stored = std::max(absmax / e2m1_max * tensor_divisor_, smallest_e4m3);
    return e4m3_numbers()[float_to_e4m3(stored)] * (1.0F / tensor_divisor_);
  }
  if (scheme_ == QuantizationScheme::mxfp4) {
    // The largest number is 6 = 1.5 * 2^2; the least and largest powers of E8M0 are 2^-127, 2^127.
    if (!(absmax > 0x1p-100F)) return 0x1p-100F;
    return std::ldexp(1.0F, std::clamp(std::ilogb(absmax) - 2, -126, 127));
  }
  const float largest = scheme_ == QuantizationScheme::fp8    ? e4m3_max
                        : scheme_ == QuantizationScheme::int8 ? 127.0F
                                                              : 7.5F;
  const float least = scale_dtype_ == DType::f16 ? smallest_half_scale : smallest_scale;
  return rounded_to(std::max(absmax / largest, least), scale_dtype_);
}

float CodeGrid::squared_error(std::span<const float> weights, float scale) const {
  float sum = 0.0F;
  for (const float weight : weights) {
    const float error = weight - nearest(weight, scale);
    sum += error * error;
  }
  return sum;
}

float CodeGrid::scale_of(std::span<const float> weights) const {
  float absmax = 0.0F;
  for (const float weight : weights) absmax = std::max(absmax, std::abs(weight));
  float scale = scale_for(absmax);
  if (choice_ == ScaleChoice::absmax || absmax == 0.0F) return scale;
  float least = squared_error(weights, scale);
  const auto consider = [&](float candidate) {
    const float error = squared_error(weights, candidate);
    if (error < least) {
      least = error;
      scale = candidate;
    }
  };
  if (scheme_ == QuantizationScheme::mxfp4) {
    consider(scale_for(2.0F * absmax));
    return scale;
  }
  constexpr int steps = 40;
  // 7.5 / 1.08 is just below 7. The codes of E2M1 are closer together around 4 than around 6: with
  // 1.5 the largest magnitude is a 4.
  const float lowest = 0.5F, highest = scheme_ == QuantizationScheme::nvfp4 ? 1.5F : 1.08F;
  for (int i = 0; i <= steps; ++i) {
    const float part = lowest + (highest - lowest) * static_cast<float>(i) / steps;
    consider(scale_for(part * absmax));
  }
  return scale;
}

std::uint8_t CodeGrid::code_of(float weight, float scale) const {
  const float number = weight / scale;
  switch (scheme_) {
    case QuantizationScheme::fp8:
      return float_to_e4m3(number);
    case QuantizationScheme::int8:
      return static_cast<std::uint8_t>(
          static_cast<std::int8_t>(std::nearbyint(std::clamp(number, -127.0F, 127.0F))));
    case QuantizationScheme::w4a16:
      return static_cast<std::uint8_t>(std::nearbyint(std::clamp(number, -8.0F, 7.0F)) + 8.0F);
    case QuantizationScheme::mxfp4:
    case QuantizationScheme::nvfp4:
      return float_to_e2m1(number);
  }
  return 0;
}

float CodeGrid::number_of(std::uint8_t code, float scale) const {
  float number = 0.0F;
  switch (scheme_) {
    case QuantizationScheme::fp8:
      number = e4m3_numbers()[code];
      break;
    case QuantizationScheme::int8:
      number = static_cast<std::int8_t>(code);
      break;
    case QuantizationScheme::w4a16:
      number = static_cast<float>(code) - 8.0F;
      break;
    case QuantizationScheme::mxfp4:
    case QuantizationScheme::nvfp4:
      number = e2m1_magnitudes[code & 7U] * ((code & 8U) != 0 ? -1.0F : 1.0F);
      break;
  }
  return rounded_to(number * scale, scale_dtype() == DType::f16 ? DType::f16 : DType::bf16);
}

float rounded_to(float number, DType dtype) {
  if (dtype == DType::bf16) return to_float(to_bfloat16(number));
  if (dtype == DType::f16) return half_to_float(float_to_half(number));
  return number;
}

}  // namespace troupe
