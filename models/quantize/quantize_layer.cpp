#include "models/quantize/quantize_layer.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "models/quantize/channel_scales.hpp"
#include "models/quantize/prune_layer.hpp"

namespace troupe {
namespace {

constexpr std::int64_t rows_of_figures = 1024;

/// Scales channels, the inputs of their readers included.
void scale_channels(const ModelConfig& config, const QuantizationPlan& plan,
                    const QuantizationOptions& options, LayerTensors& tensors,
                    InputObserver& inputs, ThreadPool& threads) {
  const bool is_awq = options.method == QuantizationMethod::awq;
  if (!is_awq && options.method != QuantizationMethod::smoothquant) return;
  const ScaleSearch search{plan, options, tensors, inputs, threads};
  for (const ScaleFold& fold : folds_of(config, tensors, is_awq)) {
    std::vector<float> scales =
        is_awq ? awq_scales(fold, search) : smoothquant_scales(fold, search);
    if (scales.empty()) continue;
    apply_fold(fold, tensors, scales, threads);
    const std::vector<float> of_columns = spread(fold, scales);
    std::set<InputStatistics*> done;
    for (const ScaleFold::Reader& reader : fold.readers) {
      const auto place = tensors.find(reader.parameter, reader.expert);
      InputStatistics* const seen = inputs.inputs_of(place->tensor->name);
      if (seen != nullptr && done.insert(seen).second) seen->divide(of_columns);
    }
  }
}

}  // namespace

double RelativeError::value() const { return whole > 0.0 ? std::sqrt(error / whole) : 0.0; }

bool has_enough_inputs(const InputStatistics* inputs) {
  if (inputs == nullptr) return false;
  return static_cast<double>(inputs->rows()) >=
         least_inputs * static_cast<double>(inputs->columns());
}

RelativeError relative_error(const Tensor& matrix,
                             const std::function<float(std::int64_t, std::int64_t)>& number,
                             const InputStatistics* inputs, ThreadPool& threads) {
  const std::int64_t rows = std::min(rows_of_figures, matrix[0]), columns = matrix[1];
  HostTensor errors(DType::f32, {rows, columns}), weights(DType::f32, {rows, columns});
  RelativeError found;
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t row = i * matrix[0] / rows;
    for (std::int64_t j = 0; j < columns; ++j) {
      const float weight = matrix.as<float>()[row * columns + j];
      const float error = weight - number(row, j);
      weights->as<float>()[i * columns + j] = weight;
      errors->as<float>()[i * columns + j] = error;
      found.error += static_cast<double>(error) * static_cast<double>(error);
      found.whole += static_cast<double>(weight) * static_cast<double>(weight);
    }
  }
  if (inputs == nullptr) return found;
  return {inputs->output_energy(errors, threads), inputs->output_energy(weights, threads)};
}

RelativeError relative_error(const Tensor& matrix, const QuantizedMatrix& rounded,
                             const InputStatistics* inputs, ThreadPool& threads) {
  const auto number = [&](std::int64_t row, std::int64_t column) {
    return rounded.number(row, column);
  };
  return relative_error(matrix, number, inputs, threads);
}

Result<QuantizedLayer> quantize_layer(const ModelConfig& config, const QuantizationPlan& plan,
                                      const QuantizationOptions& options, LayerTensors& tensors,
                                      InputObserver& inputs, ThreadPool& threads) {
  if (is_pruning(options.scheme)) {
    return prune_layer(config, plan, options, tensors, inputs, threads);
  }
  scale_channels(config, plan, options, tensors, inputs, threads);
  QuantizedLayer layer;
  MatrixRanges ranges;
  if (has_tensor_scale(std::get<QuantizationScheme>(options.scheme))) {
    for (const LayerTensor& tensor : tensors.all()) {
      if (const auto* const matrix = plan.find(tensor.name)) ranges.add(*matrix, tensor.values);
    }
  }
  const InputStatistics* solved = nullptr;  // matrices with the same inputs follow each other
  std::optional<GptqSolver> solver;
  for (const LayerTensor& tensor : tensors.all()) {
    const MatrixPlan* const matrix = plan.find(tensor.name);
    if (matrix == nullptr) continue;
    const InputStatistics* const seen = inputs.inputs_of(tensor.name);
    MatrixFigures figures{
        .name = tensor.name,
        .method = has_enough_inputs(seen) ? options.method : QuantizationMethod::rtn,
        .inputs = seen == nullptr ? 0 : seen->rows()};
    const CodeGrid grid = ranges.grid_of(*matrix, options);
    QuantizedMatrix made;
    if (figures.method == QuantizationMethod::gptq) {
      if (solved != seen) {
        auto created = GptqSolver::create(*seen, options.gptq, threads);
        if (!created.ok()) {
          return fail(created.error().code, "{}: {}", tensor.name, created.error().message);
        }
        solver = *std::move(created);
        solved = seen;
      }
      made = solver->solve(tensor.values, grid, matrix->group, threads);
    } else {
      made = round_to_nearest(tensor.values, grid, matrix->group, threads);
    }
    const RelativeError error = relative_error(tensor.values, made, seen, threads);
    figures.relative_error = error.value();
    layer.error.error += error.error;
    layer.error.whole += error.whole;
    layer.figures.push_back(figures);
    layer.matrices.emplace(tensor.name, std::move(made));
  }
  return layer;
}

}  // namespace troupe
