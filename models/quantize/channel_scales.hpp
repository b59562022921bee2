#pragma once

#include <functional>
#include <vector>

#include "models/quantize/input_observer.hpp"
#include "models/quantize/layer_tensors.hpp"
#include "models/quantize/plan.hpp"
#include "models/quantize/scale_folding.hpp"

namespace troupe {

/// The inputs of the search for the scales of a fold's channels.
struct ScaleSearch {
  const QuantizationPlan& plan;
  const QuantizationOptions& options;
  LayerTensors& tensors;
  const InputObserver& inputs;
  ThreadPool& threads;
};

/// Scales mean |x|^alpha, for the alpha of 0, 0.05, ..., 1 with which rounding the scaled readers
/// to nearest adds the least to their outputs (Lin et al. 2023, section 3.2), measured on 256 rows
/// of each. Empty if no input of a reader was seen, or nothing is better than no scales.
std::vector<float> awq_scales(const ScaleFold& fold, const ScaleSearch& search);

/// Scales max|x|^alpha / max|w|^(1 - alpha) with alpha 0.5 (Xiao et al. 2022, section 4, equation
/// 4). Empty if no input was seen.
std::vector<float> smoothquant_scales(const ScaleFold& fold, const ScaleSearch& search);

}  // namespace troupe
