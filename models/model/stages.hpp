#pragma once

#include <cstdint>
#include <vector>

#include "models/config/model_config.hpp"
#include "parallel/sharding/sharding.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// What each layer costs a token, in multiply-adds: the projections of attention, its scores and
/// sums over a context of 512 tokens (or a shorter window), and a dense MLP or the router, top_k
/// experts and what is shared. The embedding counts to the first layer and the head to the last.
/// Only sampled rows reach the head: taking half a batch's tokens for prompt and half for sampled
/// ones, half of it counts.
///
/// On a GPU a sampled token costs what is read for it, which is the time of as many multiply-adds:
/// its share of all weights of the layer, experts too, and the keys and values of a context of
/// 1,536 tokens. There the costs are those of a prompt's token and a sampled one together.
std::vector<std::int64_t> layer_costs(const ModelConfig& config, bool on_gpu = false);

/// The layers of each of `stages` pipeline stages, balanced by layer_costs; the same on every rank.
/// Error: invalid_argument where there are more stages than layers.
Result<std::vector<Slice>> stage_layers(const ModelConfig& config, int stages, bool on_gpu = false);

}  // namespace troupe
