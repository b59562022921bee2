#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/checkpoint/checkpoint.hpp"
#include "models/config/model_config.hpp"
#include "models/layers/weights/parameters.hpp"
#include "parallel/device/tensor.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// A tensor of a layer, in f32.
struct LayerTensor {
  std::string name;
  Shape shape{0};             ///< in the checkpoint
  DType dtype = DType::bf16;  ///< in the checkpoint
  HostTensor values = {};     ///< [rows, columns] f32; a vector has one column
  bool is_changed = false;    ///< other numbers than the checkpoint's

  std::int64_t rows() const { return values.view()[0]; }
  std::int64_t columns() const { return values.view()[1]; }
  float* row(std::int64_t i) const { return values->as<float>() + i * columns(); }
};

/// Reads a tensor of a checkpoint as f32. Errors: those of Checkpoint::stored_weight; corrupt_data
/// for a number that is not finite.
Result<LayerTensor> read_tensor(const Checkpoint& checkpoint, const std::string& name,
                                const Shape& shape);

/// All tensors of a layer that a family's table names, by their roles; without those that hold all
/// experts at once.
class LayerTensors {
 public:
  static Result<LayerTensors> load(const ModelConfig& config, const Checkpoint& checkpoint,
                                   std::int64_t layer);

  /// A parameter's tensor, and its rows there, in order.
  struct Place {
    LayerTensor* tensor = nullptr;
    std::vector<Slice> rows;
  };
  /// None if the layer has no such parameter.
  std::optional<Place> find(Parameter parameter, std::int64_t expert = 0);
  LayerTensor* find(std::string_view name);
  std::span<LayerTensor> all() { return tensors_; }

 private:
  struct Role {
    const WeightRule* rule;
    std::int64_t expert;
    std::size_t tensor;
  };

  const ModelConfig* config_ = nullptr;
  std::vector<LayerTensor> tensors_;
  std::vector<Role> roles_;
};

}  // namespace troupe
