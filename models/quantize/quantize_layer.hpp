#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "models/ops/cpu/thread_pool.hpp"
#include "models/quantize/input_observer.hpp"
#include "models/quantize/layer_tensors.hpp"
#include "models/quantize/plan.hpp"
#include "models/quantize/quantized_matrix.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// What became of a matrix.
struct MatrixFigures {
  std::string name;
  QuantizationMethod method = QuantizationMethod::rtn;  ///< that chose its codes
  std::int64_t inputs = 0;  ///< seen of it; 0: none, the error is then that of the weights alone
  /// ||(W - Wq) X|| / ||W X|| over the inputs X that were seen, of at most 1024 rows of W.
  double relative_error = 0.0;
};

/// The squared error of rounding and the squared norm, of outputs if inputs are known, else of
/// weights.
struct RelativeError {
  double error = 0.0;
  double whole = 0.0;
  double value() const;
};
/// `number(row, column)` is what `matrix` [rows, columns] f32 became.
RelativeError relative_error(const Tensor& matrix,
                             const std::function<float(std::int64_t, std::int64_t)>& number,
                             const InputStatistics* inputs, ThreadPool& threads);
RelativeError relative_error(const Tensor& matrix, const QuantizedMatrix& rounded,
                             const InputStatistics* inputs, ThreadPool& threads);

struct QuantizedLayer {
  std::map<std::string, QuantizedMatrix, std::less<>> matrices;  ///< by their tensors' names
  std::vector<MatrixFigures> figures;
  RelativeError error;  ///< of all
};

/// Inputs below which a matrix is rounded to nearest, whatever the method: a share of its columns.
inline constexpr double least_inputs = 0.25;
/// Null: none were seen.
bool has_enough_inputs(const InputStatistics* inputs);

/// Quantises the matrices of a layer that the plan names. AWQ and SmoothQuant first scale channels
/// (`tensors` and the observed inputs change with them); GPTQ uses the inputs as they are. A matrix
/// with too few inputs is rounded to nearest. Errors: those of inverse_factor, with the matrix.
Result<QuantizedLayer> quantize_layer(const ModelConfig& config, const QuantizationPlan& plan,
                                      const QuantizationOptions& options, LayerTensors& tensors,
                                      InputObserver& inputs, ThreadPool& threads);

}  // namespace troupe
