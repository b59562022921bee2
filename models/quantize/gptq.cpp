#include "models/quantize/gptq.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace troupe {
namespace {

constexpr std::int64_t block = 128;        ///< columns
constexpr std::int64_t factor_block = 32;  ///< columns of the factorisation
constexpr std::int64_t rows_in_tile = 16;
constexpr std::int64_t columns_in_tile = 512;

double dot(const double* a, const double* b, std::int64_t count) {
  constexpr std::int64_t lanes = 8;
  std::array<double, lanes> sums{};
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      sums[static_cast<std::size_t>(lane)] += a[i + lane] * b[i + lane];
    }
  }
  double sum = std::reduce(sums.begin(), sums.end());
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

/// Replaces the upper triangle of `a` [k, k] by R, for which R R^T is `a`. False if a pivot is not
/// positive.
bool factor_from_below(std::vector<double>& a, std::int64_t k, ThreadPool& threads) {
  const auto row = [&](std::int64_t i) { return a.data() + i * k; };
  for (std::int64_t end = k; end > 0; end = std::max<std::int64_t>(0, end - factor_block)) {
    const std::int64_t begin = std::max<std::int64_t>(0, end - factor_block);
    threads.run([&](int member) {
      for (std::int64_t i = member; i < end; i += threads.size()) {
        for (std::int64_t j = std::max(begin, i); j < end; ++j) {
          row(i)[j] -= dot(row(i) + end, row(j) + end, k - end);
        }
      }
    });
    const auto solve_row = [&](std::int64_t i, std::int64_t j) {
      row(i)[j] = (row(i)[j] - dot(row(i) + j + 1, row(j) + j + 1, end - j - 1)) / row(j)[j];
    };
    for (std::int64_t j = end - 1; j >= begin; --j) {
      const double pivot = row(j)[j] - dot(row(j) + j + 1, row(j) + j + 1, end - j - 1);
      if (!(pivot > 0.0) || !std::isfinite(pivot)) return false;
      row(j)[j] = std::sqrt(pivot);
      for (std::int64_t i = begin; i < j; ++i) solve_row(i, j);
    }
    threads.run([&](int member) {
      for (std::int64_t i = member; i < begin; i += threads.size()) {
        for (std::int64_t j = end - 1; j >= begin; --j) solve_row(i, j);
      }
    });
  }
  return true;
}

/// The inverse of the upper triangular `r` [k, k].
std::vector<float> inverse_of_upper(const std::vector<double>& r, std::int64_t k,
                                    ThreadPool& threads) {
  std::vector<float> inverse(static_cast<std::size_t>(k * k));
  threads.run([&](int member) {
    std::vector<double> rows(static_cast<std::size_t>(rows_in_tile * k));
    for (std::int64_t first = rows_in_tile * member; first < k;
         first += rows_in_tile * threads.size()) {
      const std::int64_t count = std::min(rows_in_tile, k - first);
      std::ranges::fill(rows, 0.0);
      for (std::int64_t i = 0; i < count; ++i) {
        rows[static_cast<std::size_t>(i * k + first + i)] = 1.0;
      }
      for (std::int64_t m = first; m < k; ++m) {
        const double* const from = r.data() + m * k;
        for (std::int64_t i = 0; i < std::min(count, m - first + 1); ++i) {
          double* const x = rows.data() + i * k;
          x[m] /= from[m];
          const double factor = x[m];
          for (std::int64_t j = m + 1; j < k; ++j) x[j] -= factor * from[j];
        }
      }
      for (std::int64_t i = 0; i < count * k; ++i) {
        inverse[static_cast<std::size_t>(first * k + i)] =
            static_cast<float>(rows[static_cast<std::size_t>(i)]);
      }
    }
  });
  return inverse;
}

/// Some rows of a matrix, their columns in the order in which they are rounded.
class RowTile {
 public:
  RowTile(const Tensor& matrix, std::span<const std::int64_t> order, std::span<const float> factor)
      : matrix_(matrix), order_(order), factor_(factor), columns_(matrix[1]) {
    weights_.resize(static_cast<std::size_t>(rows_in_tile * columns_));
    errors_.resize(static_cast<std::size_t>(rows_in_tile * block));
  }

  void round(std::int64_t first, std::int64_t count, QuantizedMatrix& made) {
    load(first, count, made);
    for (std::int64_t begin = 0; begin < columns_; begin += block) {
      const std::int64_t end = std::min(begin + block, columns_);
      for (std::int64_t j = begin; j < end; ++j) {
        for (std::int64_t row = 0; row < count; ++row) round_one(first, row, j, begin, end, made);
      }
      make_up(count, begin, end);
    }
  }

 private:
  std::int64_t column_of(std::int64_t j) const {
    return order_.empty() ? j : order_[static_cast<std::size_t>(j)];
  }
  float* weights(std::int64_t row) { return weights_.data() + row * columns_; }

  void load(std::int64_t first, std::int64_t count, QuantizedMatrix& made) {
    for (std::int64_t row = 0; row < count; ++row) {
      const float* const from = matrix_.as<float>() + (first + row) * columns_;
      for (std::int64_t j = 0; j < columns_; ++j) weights(row)[j] = from[column_of(j)];
      if (order_.empty()) continue;
      for (std::int64_t g = 0; g < made.groups(); ++g) {
        made.scales[static_cast<std::size_t>((first + row) * made.groups() + g)] =
            made.grid.scale_of({from + g * made.group, static_cast<std::size_t>(made.group)});
      }
    }
  }

  void round_one(std::int64_t first, std::int64_t row, std::int64_t j, std::int64_t begin,
                 std::int64_t end, QuantizedMatrix& made) {
    float* const w = weights(row);
    const std::int64_t column = column_of(j), group = column / made.group;
    float& scale = made.scales[static_cast<std::size_t>((first + row) * made.groups() + group)];
    if (order_.empty() && j % made.group == 0) {
      scale = made.grid.scale_of({w + j, static_cast<std::size_t>(made.group)});
    }
    const std::uint8_t code = made.grid.code_of(w[j], scale);
    made.codes[static_cast<std::size_t>((first + row) * columns_ + column)] = code;
    const float* const factor = factor_.data() + j * columns_;
    const float error = (w[j] - made.grid.number_of(code, scale)) / factor[j];
    errors_[static_cast<std::size_t>(row * block + j - begin)] = error;
    for (std::int64_t l = j + 1; l < end; ++l) w[l] -= error * factor[l];
  }

  /// Changes the columns after a block by what all its errors ask for.
  void make_up(std::int64_t count, std::int64_t begin, std::int64_t end) {
    for (std::int64_t first = end; first < columns_; first += columns_in_tile) {
      const std::int64_t last = std::min(first + columns_in_tile, columns_);
      for (std::int64_t row = 0; row < count; ++row) {
        float* const w = weights(row);
        for (std::int64_t j = begin; j < end; ++j) {
          const float error = errors_[static_cast<std::size_t>(row * block + j - begin)];
          const float* const factor = factor_.data() + j * columns_;
          for (std::int64_t l = first; l < last; ++l) w[l] -= error * factor[l];
        }
      }
    }
  }

  const Tensor& matrix_;
  std::span<const std::int64_t> order_;
  std::span<const float> factor_;
  std::int64_t columns_;
  std::vector<float> weights_;
  std::vector<float> errors_;
};

}  // namespace

Result<std::vector<float>> inverse_factor(const InputStatistics& inputs, double damping,
                                          std::span<const std::int64_t> order,
                                          ThreadPool& threads) {
  const std::int64_t k = inputs.columns();
  const auto column = [&](std::int64_t i) {
    return order.empty() ? i : order[static_cast<std::size_t>(i)];
  };
  double mean = 0.0;
  for (std::int64_t i = 0; i < k; ++i) mean += static_cast<double>(inputs.product(i, i));
  mean /= static_cast<double>(k);
  if (!std::isfinite(mean)) {
    return fail(ErrorCode::invalid_argument, "the inputs are not finite: are these weights sound?");
  }
  if (mean == 0.0) mean = 1.0;
  for (int attempt = 0; attempt < 3; ++attempt, damping *= 10.0) {
    std::vector<double> products(static_cast<std::size_t>(k * k));
    for (std::int64_t i = 0; i < k; ++i) {
      for (std::int64_t j = i; j < k; ++j) {
        products[static_cast<std::size_t>(i * k + j)] =
            static_cast<double>(inputs.product(column(i), column(j)));
      }
      double& diagonal = products[static_cast<std::size_t>(i * k + i)];
      if (diagonal == 0.0) diagonal = mean;
      diagonal += damping * mean;
    }
    if (factor_from_below(products, k, threads)) return inverse_of_upper(products, k, threads);
  }
  return fail(ErrorCode::invalid_argument,
              "the products of {} inputs of {} columns cannot be factored: give a longer text with "
              "--calibrate",
              inputs.rows(), k);
}

Result<GptqSolver> GptqSolver::create(const InputStatistics& inputs, const GptqOptions& options,
                                      ThreadPool& threads) {
  GptqSolver solver;
  if (options.act_order) {
    solver.order_.resize(static_cast<std::size_t>(inputs.columns()));
    std::iota(solver.order_.begin(), solver.order_.end(), 0);
    std::ranges::stable_sort(solver.order_, std::ranges::greater(),
                             [&](std::int64_t i) { return inputs.product(i, i); });
  }
  TROUPE_TRY(solver.factor_, inverse_factor(inputs, options.damping, solver.order_, threads));
  return solver;
}

QuantizedMatrix GptqSolver::solve(const Tensor& matrix, const CodeGrid& grid, std::int64_t group,
                                  ThreadPool& threads) const {
  QuantizedMatrix made(grid, matrix.shape(), group);
  threads.run([&](int member) {
    RowTile tile(matrix, order_, factor_);
    for (std::int64_t first = rows_in_tile * member; first < made.rows;
         first += rows_in_tile * threads.size()) {
      tile.round(first, std::min(rows_in_tile, made.rows - first), made);
    }
  });
  return made;
}

}  // namespace troupe
