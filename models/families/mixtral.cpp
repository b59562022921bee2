#include "models/families/mixtral.hpp"

#include "models/families/weight_tables.hpp"
#include "models/layers/attention/attention.hpp"
#include "models/layers/moe/moe.hpp"

namespace troupe {

namespace {

constexpr std::array block_sparse_weights = {
    WeightRule{Parameter::router, "model.layers.{layer}.block_sparse_moe.gate.weight",
               ShardRule::replicated},
    WeightRule{Parameter::expert_gate,
               "model.layers.{layer}.block_sparse_moe.experts.{expert}.w1.weight",
               ShardRule::column},
    WeightRule{Parameter::expert_up,
               "model.layers.{layer}.block_sparse_moe.experts.{expert}.w3.weight",
               ShardRule::column},
    WeightRule{Parameter::expert_down,
               "model.layers.{layer}.block_sparse_moe.experts.{expert}.w2.weight", ShardRule::row},
};

constexpr auto weight_rules =
    join_tables(decoder_weights, grouped_query_weights, block_sparse_weights);

Result<DecoderLayer> build_layer(const LayerContext& context, std::int64_t layer) {
  TROUPE_TRY(auto attention, Attention::create(context, layer, {}));
  TROUPE_TRY(auto experts, make_moe(context, layer));
  return DecoderLayer::create(context, layer, std::move(attention), std::move(experts));
}

constexpr Family family{weight_rules, build_layer};

}  // namespace

const Family& mixtral_family() { return family; }

}  // namespace troupe
