#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/ops/cpu/thread_pool.hpp"
#include "parallel/device/tensor.hpp"

namespace troupe {

/// What is known of the inputs x [k] of a matrix [n, k]: enough for the error that another matrix
/// makes of them, and for GPTQ, AWQ and SmoothQuant. One thread at a time; sums are in f32, 256
/// rows at most at once.
class InputStatistics {
 public:
  explicit InputStatistics(std::int64_t columns);

  /// Takes in rows of k floats each.
  void add(std::span<const float* const> rows, ThreadPool& threads);

  std::int64_t columns() const { return columns_; }
  std::int64_t rows() const { return rows_; }
  /// An element of the sum of x x^T over all rows.
  float product(std::int64_t i, std::int64_t j) const {
    return products_[static_cast<std::size_t>(i < j ? i * columns_ + j : j * columns_ + i)];
  }
  double mean_magnitude(std::int64_t column) const;  ///< of an element of x
  float largest(std::int64_t column) const { return largest_[static_cast<std::size_t>(column)]; }

  /// Makes them those of x / scales.
  void divide(std::span<const float> scales);

  /// The sum over all rows x and all rows d of `matrix` [n, k] f32 of (d . x)^2: the squared norm
  /// of the matrix's outputs.
  double output_energy(const Tensor& matrix, ThreadPool& threads) const;

 private:
  std::int64_t columns_;
  std::int64_t rows_ = 0;
  std::vector<float> products_;     // [k, k], of which the elements [i, j] with j >= i are there
  std::vector<double> magnitudes_;  // sums
  std::vector<float> largest_;
};

}  // namespace troupe
