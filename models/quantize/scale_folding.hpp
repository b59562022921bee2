#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "models/config/model_config.hpp"
#include "models/ops/cpu/thread_pool.hpp"
#include "models/quantize/input_statistics.hpp"
#include "models/quantize/layer_tensors.hpp"

namespace troupe {

/// A place where channels can be scaled without changing what a layer computes: what gives the
/// channels (a norm's weight, or the rows of a matrix) is divided by scales, and the columns of all
/// matrices that read them are multiplied by the same (Lin et al. 2023, AWQ, section 3.2; Xiao et
/// al. 2022, SmoothQuant, section 4).
struct ScaleFold {
  struct Reader {
    Parameter parameter = Parameter::query;
    std::int64_t expert = 0;
  };
  Parameter source = Parameter::attention_norm;
  std::optional<Parameter> bias = std::nullopt;  ///< of the source, if the layer has it
  std::int64_t expert = 0;                       ///< of the source
  bool is_norm = true;
  bool adds_one = false;      ///< the norm's factor is one more than its weight
  std::int64_t copies = 1;    ///< readers have each head of the source so many times in a row
  std::int64_t head_dim = 0;  ///< of the copies
  std::vector<Reader> readers = {};
};

/// The folds of a layer, norms first. `with_rows`: also those whose source is a matrix.
std::vector<ScaleFold> folds_of(const ModelConfig& config, LayerTensors& tensors, bool with_rows);

/// The scale of each column of the readers for one of each channel of the source.
std::vector<float> spread(const ScaleFold& fold, std::span<const float> of_source);

/// Scales the layer's tensors. A norm's weight is rounded to its stored dtype, and `scales`, one
/// for each channel of the source, are changed to what that makes them; so the layer computes the
/// same but for the rounding of readers that stay as they are.
void apply_fold(const ScaleFold& fold, LayerTensors& tensors, std::vector<float>& scales,
                ThreadPool& threads);

}  // namespace troupe
