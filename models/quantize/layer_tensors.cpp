#include "models/quantize/layer_tensors.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "models/families/family.hpp"

namespace troupe {

namespace {

Result<void> check_finite(const LayerTensor& tensor, const Checkpoint& checkpoint) {
  for (std::int64_t i = 0; i < tensor.rows(); ++i) {
    for (std::int64_t j = 0; j < tensor.columns(); ++j) {
      const float number = tensor.row(i)[j];
      if (std::isfinite(number)) continue;
      return fail(ErrorCode::corrupt_data,
                  "{}: tensor {}: row {}, column {} is {}: the checkpoint is damaged, get it anew",
                  checkpoint.folder().string(), tensor.name, i, j, number);
    }
  }
  return {};
}

}  // namespace

Result<LayerTensor> read_tensor(const Checkpoint& checkpoint, const std::string& name,
                                const Shape& shape) {
  TROUPE_TRY(StoredTensor stored, checkpoint.stored_weight(name, shape));
  LayerTensor read{.name = name, .shape = shape, .dtype = stored.view.dtype()};
  if (shape.rank() == 1) stored.view = stored.view.reshaped({shape[0], 1});
  const std::int64_t rows = stored.view[0], columns = stored.view[1];
  read.values = HostTensor(DType::f32, {rows, columns});
  copy_rows({.matrix = stored, .rows = {0, rows}, .cols = {0, columns}}, 0, rows, DType::f32,
            read.values->data());
  TROUPE_CHECK(check_finite(read, checkpoint));
  return read;
}

Result<LayerTensors> LayerTensors::load(const ModelConfig& config, const Checkpoint& checkpoint,
                                        std::int64_t layer) {
  LayerTensors tensors;
  tensors.config_ = &config;
  std::map<std::string, std::size_t> known;
  for (const WeightUse& use : weights_in_use(config, weight_rules_of(config))) {
    const WeightRule& rule = *use.rule;
    if (is_global(rule.parameter) || use.layer != layer ||
        rule.stored_as == StoredAs::expert_columns) {
      continue;
    }
    const std::string name = checkpoint_name(rule, layer, use.expert);
    const auto [found, is_new] = known.emplace(name, tensors.tensors_.size());
    if (is_new) {
      TROUPE_TRY(LayerTensor tensor, read_tensor(checkpoint, name, stored_shape(rule, config)));
      tensors.tensors_.push_back(std::move(tensor));
    }
    tensors.roles_.push_back({&rule, use.expert, found->second});
  }
  return tensors;
}

std::optional<LayerTensors::Place> LayerTensors::find(Parameter parameter, std::int64_t expert) {
  for (const Role& role : roles_) {
    if (role.rule->parameter != parameter || role.expert != expert) continue;
    const std::int64_t rows = shape_of(parameter, *config_)[0];
    return Place{&tensors_[role.tensor], stored_rows(*role.rule, {0, rows}, *config_)};
  }
  return std::nullopt;
}

LayerTensor* LayerTensors::find(std::string_view name) {
  const auto found = std::ranges::find(tensors_, name, &LayerTensor::name);
  return found == tensors_.end() ? nullptr : &*found;
}

}  // namespace troupe
