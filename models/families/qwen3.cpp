#include "models/families/qwen3.hpp"

#include "models/families/weight_tables.hpp"
#include "models/layers/attention/attention.hpp"
#include "models/layers/dense_mlp.hpp"
#include "models/layers/moe/moe.hpp"

namespace troupe {

namespace {

constexpr std::array head_norms = {
    WeightRule{Parameter::query_norm, "model.layers.{layer}.self_attn.q_norm.weight",
               ShardRule::replicated},
    WeightRule{Parameter::key_norm, "model.layers.{layer}.self_attn.k_norm.weight",
               ShardRule::replicated},
};

constexpr auto weight_rules = join_tables(decoder_weights, grouped_query_weights, head_norms,
                                          dense_mlp_weights, expert_weights);

Result<DecoderLayer> build_layer(const LayerContext& context, std::int64_t layer) {
  TROUPE_TRY(auto attention, Attention::create(context, layer, {.query_key_norm = true}));
  TROUPE_TRY(auto feed_forward, context.config.is_sparse(layer) ? make_moe(context, layer)
                                                                : DenseMlp::create(context, layer));
  return DecoderLayer::create(context, layer, std::move(attention), std::move(feed_forward));
}

constexpr Family family{weight_rules, build_layer};

}  // namespace

const Family& qwen3_family() { return family; }

}  // namespace troupe
