#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "parallel/device/dtype.hpp"
#include "parallel/device/tensor.hpp"

namespace troupe {

struct StoredTensor;

/// A way to store a matrix [n, k] in fewer bits: codes, and a companion, another tensor of the
/// checkpoint, that turns them into numbers. A format is a row of weight_formats(); checkpoints
/// find it by the codes' type and the companion's name, and loaders decode through it. A device
/// that multiplies codes themselves can ask a StoredMatrix for their format.
struct WeightFormat {
  std::string_view name;       ///< for messages
  std::string_view file_type;  ///< of the codes, as safetensors files call it
  /// Appended to the codes' name, it gives the companion's.
  std::string_view companion_suffix;
  Shape (*companion_shape)(const Shape& matrix);  ///< its dtype is f32, bf16 or f16
  DType decoded;  ///< the elements are numbers of this dtype: f32 or bf16
  /// Decodes `count` elements of a row, from column `first` on.
  void (*decode)(const StoredTensor& matrix, std::int64_t row, std::int64_t first,
                 std::int64_t count, float* out);
};

std::span<const WeightFormat> weight_formats();

/// The number that an 8-bit code with 4 bits of exponent, 3 of fraction and no infinities is (OCP
/// 8-bit Floating Point Specification 1.0, 2023, E4M3).
float e4m3_to_float(std::uint8_t code);

}  // namespace troupe
