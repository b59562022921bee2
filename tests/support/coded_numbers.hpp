#pragma once

#include <array>
#include <cstdint>

#include "models/ops/coded_matrix.hpp"
#include "parallel/device/tensor.hpp"

namespace troupe {

/// The number that a code is, before its zero point and scale.
inline float number_of(CodeKind kind, std::uint8_t code) {
  constexpr std::array<float, 8> e2m1 = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  switch (kind) {
    case CodeKind::int8:
      return static_cast<std::int8_t>(code);
    case CodeKind::int4:
      return static_cast<float>(code) - 8.0F;
    case CodeKind::e4m3:
      return e4m3_to_float(code);
    default:
      return (code < 8 ? 1.0F : -1.0F) * e2m1.at(code % 8);
  }
}

/// The numbers of a matrix in its form, f32, rounded to nothing narrower.
inline HostTensor numbers_of(const StoredMatrix& matrix, const CodedForm& form) {
  HostTensor numbers(DType::f32, {matrix.rows, matrix.columns});
  CodedRow row;
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    read_coded_row(matrix, form, r, row);
    for (std::int64_t i = 0; i < matrix.columns; ++i) {
      const CodeScale scale = row.scales[static_cast<std::size_t>(form.group_of(i))];
      const float number = number_of(form.kind, row.codes[static_cast<std::size_t>(i)]);
      numbers->as<float>()[r * matrix.columns + i] =
          (number - scale.zero) * (scale.scale * row.row_scale);
    }
  }
  return numbers;
}

/// A whole stored matrix [n, k].
inline StoredMatrix whole_matrix(const StoredTensor& stored, std::int64_t n, std::int64_t k) {
  StoredMatrix matrix{.rows = n, .columns = k, .dtype = stored.dtype()};
  matrix.parts.push_back({.matrix = stored, .rows = {0, n}, .cols = {0, k}});
  return matrix;
}

}  // namespace troupe
