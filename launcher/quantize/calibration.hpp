#pragma once

#include "launcher/cli/quantize_options.hpp"
#include "models/config/model_config.hpp"
#include "models/quantize/run_layer.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Reads the text of --calibrate and cuts the windows from all over it, for the tokenizer of the
/// model. No windows without --calibrate. Errors: those of ByteSource and Tokenizer;
/// invalid_argument for a text that is too short, and for windows that the model has no positions
/// for.
Result<CalibrationText> read_calibration(const QuantizeOptions& options, const ModelConfig& config);

}  // namespace troupe
