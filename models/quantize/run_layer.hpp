#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "models/checkpoint/checkpoint.hpp"
#include "models/config/model_config.hpp"
#include "models/ops/ops.hpp"
#include "parallel/device/tensor.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The text that activations are computed of: `windows` windows of `length` tokens, each from
/// position 0.
struct CalibrationText {
  std::vector<std::int32_t> tokens;
  std::int64_t length = 0;
  std::int64_t windows() const { return std::ssize(tokens) / length; }
};

/// Called after each pass with the layer's KV cache, in f32: keys and values of the windows of this
/// pass, and zeros or those of earlier windows.
using OnKvCache = std::function<void(const KvLayer&)>;

/// Runs one decoder layer over a whole text: `input` [tokens, hidden] f32 is the residual stream
/// before it (of layer 0 empty: the embedding of the tokens), `output` [tokens, hidden] f32 that
/// after it, and may be the same. The layer is built from the checkpoint by the same code as for
/// inference, as a stage of a pipeline with a stage for each layer, and is gone afterwards. `ops`
/// of the CPU, for f32. Errors: those of loading a model and of its passes.
Result<void> run_layer(const ModelConfig& config, const Checkpoint& checkpoint, Ops& ops,
                       std::int64_t layer, const CalibrationText& text, const Tensor& input,
                       const Tensor& output, const OnKvCache& on_cache = nullptr);

}  // namespace troupe
