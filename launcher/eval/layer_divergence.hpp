#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/quantize/run_layer.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// How far the residual stream of the model in `second` is from that in `first` after each layer,
/// as a share of its size: ||b - a|| / ||a|| over all tokens of the text. Both are computed in f32
/// on this machine's CPUs, layer by layer: memory holds one layer of one model and both streams.
/// `goes_on(done, layers)` is asked before each layer. Errors: invalid_argument for models of other
/// sizes; cancelled; those of run_layer.
Result<std::vector<double>> layer_divergences(
    const std::string& first, const std::string& second, const CalibrationText& text, int threads,
    const std::function<bool(std::int64_t done, std::int64_t layers)>& goes_on);

}  // namespace troupe
