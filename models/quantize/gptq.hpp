#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/quantize/input_statistics.hpp"
#include "models/quantize/quantized_matrix.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

struct GptqOptions {
  double damping = 0.01;   ///< share of the mean diagonal that is added to the diagonal
  bool act_order = false;  ///< columns with the largest inputs first, with the scales of all groups
                           ///< chosen before
};

/// The upper triangular U [k, k] with U^T U = (P + damping)^-1 for the products P of the inputs:
/// what GPTQ needs of them (Frantar et al. 2022, section 3.3, step 3). Columns are taken in `order`
/// (empty: as they are). Found without the inverse: with R upper triangular and R R^T = P +
/// damping, U is R^-1. In f64, returned as f32. Errors: invalid_argument if P is not finite, or
/// cannot be factored even with a hundred times the damping.
Result<std::vector<float>> inverse_factor(const InputStatistics& inputs, double damping,
                                          std::span<const std::int64_t> order, ThreadPool& threads);

/// Rounds matrices with the same inputs column by column: what rounding a column adds to the
/// outputs, the columns after it make up for as well as they can, in blocks of 128 columns (Frantar
/// et al. 2022, section 3). Columns that are 0 in all inputs are rounded to nearest.
class GptqSolver {
 public:
  /// Errors: those of inverse_factor.
  static Result<GptqSolver> create(const InputStatistics& inputs, const GptqOptions& options,
                                   ThreadPool& threads);
  /// `matrix` is [n, k] f32.
  QuantizedMatrix solve(const Tensor& matrix, const CodeGrid& grid, std::int64_t group,
                        ThreadPool& threads) const;

 private:
  std::vector<std::int64_t> order_;  // of columns; empty: as they are
  std::vector<float> factor_;
};

}  // namespace troupe
