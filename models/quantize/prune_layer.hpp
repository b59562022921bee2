#pragma once

#include "models/config/model_config.hpp"
#include "models/ops/cpu/thread_pool.hpp"
#include "models/quantize/input_observer.hpp"
#include "models/quantize/layer_tensors.hpp"
#include "models/quantize/plan.hpp"
#include "models/quantize/quantize_layer.hpp"

namespace troupe {

/// Sets weights of the planned matrices of a layer to 0, those that matter least. A weight w of
/// column j counts |w| by magnitude, and |w| * ||x_j|| by Wanda, with x_j all inputs of the column
/// (Sun et al. 2023, section 3).
///
///   - two_of_four: the two least of each four columns of a row;
///   - rows: whole channels of MLPs and of experts, each a row of gate and up and the column
///     of down that reads it. A channel counts what its column does (the root of the sum of
///     squares).
///
/// The scheme of `options` is a SparsityStructure. A matrix with too few inputs is judged by
/// magnitude. Returns what was lost; `tensors` change.
QuantizedLayer prune_layer(const ModelConfig& config, const QuantizationPlan& plan,
                           const QuantizationOptions& options, LayerTensors& tensors,
                           const InputObserver& inputs, ThreadPool& threads);

}  // namespace troupe
