#include "models/families/deepseek_v3.hpp"

#include "models/families/weight_tables.hpp"
#include "models/layers/attention/latent_attention.hpp"
#include "models/layers/dense_mlp.hpp"
#include "models/layers/moe/moe.hpp"

namespace troupe {

namespace {

constexpr std::array latent_weights = {
    WeightRule{Parameter::query, "model.layers.{layer}.self_attn.q_proj.weight", ShardRule::heads},
    WeightRule{Parameter::query_down, "model.layers.{layer}.self_attn.q_a_proj.weight",
               ShardRule::replicated},
    WeightRule{Parameter::query_down_norm, "model.layers.{layer}.self_attn.q_a_layernorm.weight",
               ShardRule::replicated},
    WeightRule{Parameter::query_up, "model.layers.{layer}.self_attn.q_b_proj.weight",
               ShardRule::heads},
    WeightRule{Parameter::latent_down, "model.layers.{layer}.self_attn.kv_a_proj_with_mqa.weight",
               ShardRule::replicated},
    WeightRule{Parameter::latent_norm, "model.layers.{layer}.self_attn.kv_a_layernorm.weight",
               ShardRule::replicated},
    WeightRule{Parameter::latent_up, "model.layers.{layer}.self_attn.kv_b_proj.weight",
               ShardRule::heads},
};

constexpr std::array shared_expert_weights = {
    WeightRule{Parameter::router_bias, "model.layers.{layer}.mlp.gate.e_score_correction_bias",
               ShardRule::replicated},
    WeightRule{Parameter::shared_gate, "model.layers.{layer}.mlp.shared_experts.gate_proj.weight",
               ShardRule::column},
    WeightRule{Parameter::shared_up, "model.layers.{layer}.mlp.shared_experts.up_proj.weight",
               ShardRule::column},
    WeightRule{Parameter::shared_down, "model.layers.{layer}.mlp.shared_experts.down_proj.weight",
               ShardRule::row},
};

constexpr auto weight_rules = join_tables(decoder_weights, latent_weights, dense_mlp_weights,
                                          expert_weights, shared_expert_weights);

Result<DecoderLayer> build_layer(const LayerContext& context, std::int64_t layer) {
  TROUPE_TRY(auto attention, LatentAttention::create(context, layer));
  TROUPE_TRY(auto feed_forward, context.config.is_sparse(layer) ? make_moe(context, layer)
                                                                : DenseMlp::create(context, layer));
  return DecoderLayer::create(context, layer, std::move(attention), std::move(feed_forward));
}

constexpr Family family{weight_rules, build_layer};

}  // namespace

const Family& deepseek_v3_family() { return family; }

}  // namespace troupe
