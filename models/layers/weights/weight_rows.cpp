#include "models/layers/weights/weight_rows.hpp"

#include <cstring>

#include "parallel/device/convert.hpp"

namespace troupe {

HostTensor take_rows(const Tensor& matrix, std::span<const std::int64_t> rows) {
  const auto count = static_cast<std::int64_t>(rows.size());
  HostTensor taken(matrix.dtype(), {count, matrix[1]});
  for (std::int64_t i = 0; i < count; ++i) {
    const Tensor from = matrix.rows(rows[static_cast<std::size_t>(i)], 1);
    std::memcpy(taken->rows(i, 1).data(), from.data(), from.bytes());
  }
  return taken;
}

HostTensor stack_rows(const Tensor& upper, const Tensor& lower) {
  const DType dtype = upper.dtype() == lower.dtype() ? upper.dtype() : DType::f32;
  HostTensor stacked(dtype, {upper[0] + lower[0], upper[1]});
  const auto copy = [&](const Tensor& from, const Tensor& to) {
    if (from.dtype() == dtype) {
      std::memcpy(to.data(), from.data(), from.bytes());
    } else {
      convert(from, to);
    }
  };
  copy(upper, stacked->rows(0, upper[0]));
  copy(lower, stacked->rows(upper[0], lower[0]));
  return stacked;
}

HostTensor transposed(const Tensor& matrix) {
  const std::int64_t rows = matrix[0], columns = matrix[1];
  const auto size = size_of(matrix.dtype());
  HostTensor turned(matrix.dtype(), {columns, rows});
  const auto* from = static_cast<const std::byte*>(matrix.data());
  auto* to = static_cast<std::byte*>(turned->data());
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      std::memcpy(to + static_cast<std::size_t>(column * rows + row) * size,
                  from + static_cast<std::size_t>(row * columns + column) * size, size);
    }
  }
  return turned;
}

std::vector<std::int64_t> rows_to_rotate(std::int64_t first, std::int64_t dim, std::int64_t rotated,
                                         bool interleaved) {
  std::vector<std::int64_t> rows;
  const std::int64_t half = dim / 2, pairs = rotated / 2;
  for (std::int64_t i = 0; i < dim; ++i) {
    const std::int64_t in_half = i % half, second = i / half;
    if (rotated == 0) {
      rows.push_back(first + i);
    } else if (in_half >= pairs) {
      rows.push_back(first + rotated + second * (half - pairs) + in_half - pairs);
    } else {
      rows.push_back(first + (interleaved ? 2 * in_half + second : in_half + second * pairs));
    }
  }
  return rows;
}

}  // namespace troupe
