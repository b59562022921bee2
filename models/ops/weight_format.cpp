#include "models/ops/weight_format.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "models/ops/stored_matrix.hpp"

namespace troupe {
namespace {

/// Rows and columns that share a scale.
constexpr std::int64_t block = 128;

template <class T>
T load(const Tensor& tensor, std::int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const T*>(tensor.data()) + i, sizeof value);
  return value;
}

/// An element of a companion.
float number_at(const Tensor& tensor, std::int64_t i) {
  if (tensor.dtype() == DType::bf16) return to_float(load<BFloat16>(tensor, i));
  if (tensor.dtype() == DType::f16) return half_to_float(load<std::uint16_t>(tensor, i));
  return load<float>(tensor, i);
}

std::int64_t blocks_of(std::int64_t extent) { return (extent + block - 1) / block; }

void decode_fp8_blocks(const StoredTensor& matrix, std::int64_t row, std::int64_t first,
                       std::int64_t count, float* out) {
  static const std::array<float, 256> numbers = [] {
    std::array<float, 256> all{};
    for (std::size_t code = 0; code < all.size(); ++code) {
      all[code] = e4m3_to_float(static_cast<std::uint8_t>(code));
    }
    return all;
  }();
  const auto* codes = static_cast<const std::uint8_t*>(matrix.view.data()) + row * matrix.view[1];
  const std::int64_t scales = row / block * matrix.companion[1];
  float scale = 0.0F;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t column = first + i;
    if (i == 0 || column % block == 0) {
      scale = number_at(matrix.companion, scales + column / block);
    }
    out[i] = to_float(to_bfloat16(numbers[codes[column]] * scale));
  }
}

/// DeepSeek-V3's, 2024, section 3.3.2; `quant_method` fp8 of Hugging Face.
constexpr WeightFormat fp8_blocks{
    .name = "fp8 in blocks of 128 x 128",
    .file_type = "F8_E4M3",
    .companion_suffix = "_scale_inv",
    .companion_shape =
        [](const Shape& matrix) { return Shape{blocks_of(matrix[0]), blocks_of(matrix[1])}; },
    .decoded = DType::bf16,
    .decode = decode_fp8_blocks};

constexpr std::array formats{fp8_blocks};

}  // namespace

std::span<const WeightFormat> weight_formats() { return formats; }

float e4m3_to_float(std::uint8_t code) {
  const int exponent = code >> 3 & 0xF, fraction = code & 7;
  const bool is_nan = exponent == 15 && fraction == 7;
  const float magnitude = is_nan ? std::numeric_limits<float>::quiet_NaN()
                          : exponent == 0
                              ? std::ldexp(static_cast<float>(fraction), -9)
                              : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

}  // namespace troupe
