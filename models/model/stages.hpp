#pragma once

#include <cstdint>
#include <vector>

#include "models/config/model_config.hpp"
#include "parallel/sharding/sharding.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Returns the cost of each layer for a token, in multiply-adds: the projections of attention, its
/// scores and sums over a context of 512 tokens (or a shorter window), and a dense MLP or the
/// router, top_k experts and the shared MLP. The embedding counts to the first layer and the head
/// to the last. Only sampled rows reach the head: assuming that half of a batch's tokens are prompt
/// and half sampled, half of it counts.
///
/// On a GPU a sampled token costs the multiply-adds that fit into the time of its reads: its share
/// of all weights of the layer, experts too, and the KV of a context of 1,536 tokens. There the
/// costs are those of a prompt's token and a sampled one together.
std::vector<std::int64_t> layer_costs(const ModelConfig& config, bool on_gpu = false);

/// Returns the layers of each of `stages` pipeline stages, balanced by layer_costs; the same on
/// every rank. Errors: invalid_argument if there are more stages than layers.
Result<std::vector<Slice>> stage_layers(const ModelConfig& config, int stages, bool on_gpu = false);

}  // namespace troupe
