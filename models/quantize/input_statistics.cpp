#include "models/quantize/input_statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace troupe {
namespace {

constexpr std::int64_t rows_at_once = 256;
/// Rows of products that one thread takes in turn, as their lengths differ.
constexpr std::int64_t tile = 16;

/// sums += the products of element i of the rows with elements [i, k).
void add_products(std::span<const float* const> rows, std::int64_t i, std::int64_t k, float* sums) {
  std::size_t row = 0;
  for (; row + 4 <= rows.size(); row += 4) {
    const float *a = rows[row], *b = rows[row + 1], *c = rows[row + 2], *d = rows[row + 3];
    const float ai = a[i], bi = b[i], ci = c[i], di = d[i];
    for (std::int64_t j = i; j < k; ++j) {
      sums[j] += (ai * a[j] + bi * b[j]) + (ci * c[j] + di * d[j]);
    }
  }
  for (; row < rows.size(); ++row) {
    const float* const a = rows[row];
    const float ai = a[i];
    for (std::int64_t j = i; j < k; ++j) sums[j] += ai * a[j];
  }
}

}  // namespace

InputStatistics::InputStatistics(std::int64_t columns)
    : columns_(columns),
      products_(static_cast<std::size_t>(columns * columns)),
      magnitudes_(static_cast<std::size_t>(columns)),
      largest_(static_cast<std::size_t>(columns)) {}

void InputStatistics::add(std::span<const float* const> rows, ThreadPool& threads) {
  const std::int64_t k = columns_;
  while (!rows.empty()) {
    const auto part = rows.first(std::min<std::size_t>(rows.size(), rows_at_once));
    rows = rows.subspan(part.size());
    rows_ += std::ssize(part);
    threads.run([&](int member) {
      std::vector<float> sums(static_cast<std::size_t>(k));
      for (std::int64_t first = tile * member; first < k; first += tile * threads.size()) {
        for (std::int64_t i = first; i < std::min(first + tile, k); ++i) {
          std::fill(sums.begin() + i, sums.end(), 0.0F);
          add_products(part, i, k, sums.data());
          float* const to = products_.data() + i * k;
          for (std::int64_t j = i; j < k; ++j) to[j] += sums[static_cast<std::size_t>(j)];
        }
      }
      const Range range = split_evenly(k, member, threads.size());
      for (const float* const row : part) {
        for (std::int64_t i = range.begin; i < range.end; ++i) {
          const float magnitude = std::abs(row[i]);
          magnitudes_[static_cast<std::size_t>(i)] += static_cast<double>(magnitude);
          float& largest = largest_[static_cast<std::size_t>(i)];
          largest = std::max(largest, magnitude);
        }
      }
    });
  }
}

double InputStatistics::mean_magnitude(std::int64_t column) const {
  if (rows_ == 0) return 0.0;
  return magnitudes_[static_cast<std::size_t>(column)] / static_cast<double>(rows_);
}

void InputStatistics::divide(std::span<const float> scales) {
  for (std::size_t i = 0; i < scales.size(); ++i) {
    magnitudes_[i] /= static_cast<double>(scales[i]);
    largest_[i] /= scales[i];
    for (std::size_t j = i; j < scales.size(); ++j) {
      products_[i * scales.size() + j] /= scales[i] * scales[j];
    }
  }
}

double InputStatistics::output_energy(const Tensor& matrix, ThreadPool& threads) const {
  const std::int64_t n = matrix[0], k = columns_;
  std::vector<double> sums(static_cast<std::size_t>(threads.size()));
  threads.run([&](int member) {
    // With P the products: d P d^T = sum of d_i (P_ii d_i + 2 sum of P_ij d_j over j > i).
    std::vector<float> half(static_cast<std::size_t>(tile * k));
    double sum = 0.0;
    for (std::int64_t first = tile * member; first < n; first += tile * threads.size()) {
      const std::int64_t count = std::min(tile, n - first);
      std::ranges::fill(half, 0.0F);
      for (std::int64_t i = 0; i < k; ++i) {
        const float* const product = products_.data() + i * k;
        for (std::int64_t row = 0; row < count; ++row) {
          const float d = matrix.as<float>()[(first + row) * k + i];
          if (d == 0.0F) continue;
          float* const out = half.data() + row * k;
          out[i] += 0.5F * d * product[i];
          for (std::int64_t j = i + 1; j < k; ++j) out[j] += d * product[j];
        }
      }
      for (std::int64_t row = 0; row < count; ++row) {
        const float* const d = matrix.as<float>() + (first + row) * k;
        for (std::int64_t j = 0; j < k; ++j) {
          sum += 2.0 * static_cast<double>(half[static_cast<std::size_t>(row * k + j)]) *
                 static_cast<double>(d[j]);
        }
      }
    }
    sums[static_cast<std::size_t>(member)] = sum;
  });
  return std::max(0.0, std::reduce(sums.begin(), sums.end()));
}

}  // namespace troupe
