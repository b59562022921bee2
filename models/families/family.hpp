#pragma once

#include <span>

#include "models/layers/decoder_layer.hpp"
#include "models/layers/layer_context.hpp"
#include "models/layers/weights/parameters.hpp"

namespace troupe {

/// The properties in which model families differ: their checkpoints' weight names, and the
/// composition of a layer.
struct Family {
  std::span<const WeightRule> weights;
  Result<DecoderLayer> (*build_layer)(const LayerContext& context, std::int64_t layer);
};

const Family& family_of(Architecture architecture);

/// True if the family's checkpoints have such a weight.
bool has_weight(const Family& family, Parameter parameter);

}  // namespace troupe
