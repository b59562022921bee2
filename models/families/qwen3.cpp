#include "models/families/qwen3.hpp"

#include <array>

#include "models/layers/dense_mlp.hpp"
#include "models/layers/moe.hpp"

namespace troupe {

namespace {

using enum Parameter;

constexpr std::array weight_rules = {
    WeightRule{embedding, "model.embed_tokens.weight", ShardRule::vocabulary},
    WeightRule{attention_norm, "model.layers.{layer}.input_layernorm.weight",
               ShardRule::replicated},
    WeightRule{query, "model.layers.{layer}.self_attn.q_proj.weight", ShardRule::heads},
    WeightRule{key, "model.layers.{layer}.self_attn.k_proj.weight", ShardRule::kv_heads},
    WeightRule{value, "model.layers.{layer}.self_attn.v_proj.weight", ShardRule::kv_heads},
    WeightRule{query_norm, "model.layers.{layer}.self_attn.q_norm.weight", ShardRule::replicated},
    WeightRule{key_norm, "model.layers.{layer}.self_attn.k_norm.weight", ShardRule::replicated},
    WeightRule{output, "model.layers.{layer}.self_attn.o_proj.weight", ShardRule::heads_in},
    WeightRule{mlp_norm, "model.layers.{layer}.post_attention_layernorm.weight",
               ShardRule::replicated},
    WeightRule{gate, "model.layers.{layer}.mlp.gate_proj.weight", ShardRule::column},
    WeightRule{up, "model.layers.{layer}.mlp.up_proj.weight", ShardRule::column},
    WeightRule{down, "model.layers.{layer}.mlp.down_proj.weight", ShardRule::row},
    WeightRule{router, "model.layers.{layer}.mlp.gate.weight", ShardRule::replicated},
    WeightRule{expert_gate, "model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight",
               ShardRule::column},
    WeightRule{expert_up, "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight",
               ShardRule::column},
    WeightRule{expert_down, "model.layers.{layer}.mlp.experts.{expert}.down_proj.weight",
               ShardRule::row},
    WeightRule{final_norm, "model.norm.weight", ShardRule::replicated},
    WeightRule{head, "lm_head.weight", ShardRule::vocabulary},
};

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
