#pragma once

#include <cstddef>
#include <cstdint>

#include "parallel/device/tensor.hpp"

namespace troupe {

/// A view of `count` adjacent columns of a matrix, whose rows are as far apart as the matrix's.
struct Columns {
  Tensor matrix;
  std::int64_t first = 0;
  std::int64_t count = 0;

  Columns(const Tensor& matrix, std::int64_t first, std::int64_t count)
      : matrix(matrix), first(first), count(count) {}
  Columns(const Tensor& whole) : Columns(whole, 0, whole[1]) {}  // NOLINT: a matrix is all of them

  std::int64_t rows() const { return matrix[0]; }
  std::int64_t stride() const { return matrix[1]; }  ///< in elements
  DType dtype() const { return matrix.dtype(); }
  /// The first element of row 0.
  void* data() const {
    return static_cast<std::byte*>(matrix.data()) +
           static_cast<std::size_t>(first) * size_of(dtype());
  }
};

}  // namespace troupe
