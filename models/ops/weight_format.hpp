#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "models/config/quantization.hpp"
#include "parallel/device/dtype.hpp"
#include "parallel/device/tensor.hpp"

namespace troupe {

struct StoredTensor;

/// What the bits of a code mean, for kernels that multiply with codes (coded_matrix.hpp).
enum class CodeKind : std::uint8_t {
  int8,  ///< a signed byte
  e4m3,  ///< e4m3_to_float
  int4,  ///< 4 bits, the number plus 8
  e2m1,  ///< 4 bits with 2 of exponent and 1 of fraction
};

/// Two codes are in a byte.
constexpr bool is_packed(CodeKind kind) { return kind == CodeKind::int4 || kind == CodeKind::e2m1; }

/// The scale and the zero point of a group of codes.
struct CodeScale {
  float scale = 1.0F;
  float zero = 0.0F;
};

/// A way to store a matrix [n, k] in fewer bits: codes, and companions, other tensors of the
/// checkpoint, that turn them into numbers:
///
///     number = (code - zero point) * scale
///
/// where groups of rows and columns share scale and zero point (WeightScheme). Checkpoints find
/// a format by their config's WeightCoding (weight_format), and loaders decode through it. A device
/// that multiplies codes themselves can ask a StoredMatrix for their format.
struct WeightFormat {
  WeightCoding coding;
  std::string_view name;       ///< for messages
  std::string_view file_type;  ///< of codes, as safetensors files call it; others are numbers
  /// The names of its tensors, which take the place of `stem` at the end of the matrix's name.
  std::string_view stem = {};
  std::string_view codes = {};
  std::array<std::string_view, 2> scales;  ///< the first that is there
  std::string_view zero_points = {};
  std::string_view group_index = {};
  /// One number of f32, which all scales are times, or divided by (NVFP4).
  std::string_view tensor_scale = {};
  bool divides_by_tensor_scale = false;
  /// Their shapes for a matrix; `groups`: the rows and columns of groups. Extents of 1 count for
  /// nothing.
  Shape (*codes_shape)(const Shape& matrix);
  Shape (*scales_shape)(const Shape& groups);
  Shape (*zero_points_shape)(const Shape& groups, const Shape& matrix) = nullptr;
  /// The codes are [n, k], a byte each, so that a row's lie side by side.
  bool has_byte_codes = false;
  /// Decodes `count` elements of a row, from column `first` on.
  void (*decode)(const StoredTensor& matrix, std::int64_t row, std::int64_t first,
                 std::int64_t count, float* out) = nullptr;

  bool has_fractional_zeros = false;  ///< zero points need not be whole numbers

  /// What a stored code less `kind_offset` (modulo 256) is; zero points are of stored codes.
  CodeKind kind = CodeKind::int8;
  std::uint8_t kind_offset = 0;
  /// `count` codes of a row as they are stored, a byte each, from column `first` on. Null: products
  /// with its codes are not known, and matrices become numbers.
  void (*codes_of)(const StoredTensor& matrix, std::int64_t row, std::int64_t first,
                   std::int64_t count, std::uint8_t* out) = nullptr;
  /// Of a row's group of columns, without StoredTensor::tensor_scale.
  CodeScale (*scale_of)(const StoredTensor& matrix, std::int64_t row, std::int64_t group) = nullptr;
};

const WeightFormat& weight_format(WeightCoding coding);

/// The rows and columns of groups that a matrix has; the last ones may be short.
Shape groups_of(const WeightScheme& scheme, const Shape& matrix);

/// A scale of a companion: f32, bf16, f16, f8_e4m3, or as u8 a power of two (OCP Microscaling
/// Formats Specification 1.0, 2023, E8M0).
float scale_at(const Tensor& scales, std::int64_t i);

/// The number that an 8-bit code with 4 bits of exponent, 3 of fraction and no infinities is (OCP
/// 8-bit Floating Point Specification 1.0, 2023, E4M3).
float e4m3_to_float(std::uint8_t code);

}  // namespace troupe
