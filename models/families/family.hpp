#pragma once

#include <span>

#include "models/layers/decoder_layer.hpp"
#include "models/layers/layer_context.hpp"
#include "models/layers/weights/parameters.hpp"

namespace troupe {

/// What makes models of one kind differ from others: what their checkpoints call the weights, and
/// what a layer is composed of.
struct Family {
  std::span<const WeightRule> weights;
  Result<DecoderLayer> (*build_layer)(const LayerContext& context, std::int64_t layer);
};

const Family& family_of(Architecture architecture);

/// Whether the family's checkpoints have such a weight.
bool has_weight(const Family& family, Parameter parameter);

}  // namespace troupe
