#include "models/families/llama.hpp"

#include <array>

#include "models/layers/dense_mlp.hpp"

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
    WeightRule{output, "model.layers.{layer}.self_attn.o_proj.weight", ShardRule::heads_in},
    WeightRule{mlp_norm, "model.layers.{layer}.post_attention_layernorm.weight",
               ShardRule::replicated},
    WeightRule{gate, "model.layers.{layer}.mlp.gate_proj.weight", ShardRule::column},
    WeightRule{up, "model.layers.{layer}.mlp.up_proj.weight", ShardRule::column},
    WeightRule{down, "model.layers.{layer}.mlp.down_proj.weight", ShardRule::row},
    WeightRule{final_norm, "model.norm.weight", ShardRule::replicated},
    WeightRule{head, "lm_head.weight", ShardRule::vocabulary},
};

Result<DecoderLayer> build_layer(const LayerContext& context, std::int64_t layer) {
  TROUPE_TRY(auto attention, Attention::create(context, layer, {}));
  TROUPE_TRY(auto mlp, DenseMlp::create(context, layer));
  return DecoderLayer::create(context, layer, std::move(attention), std::move(mlp));
}

constexpr Family family{weight_rules, build_layer};

}  // namespace

const Family& llama_family() { return family; }

}  // namespace troupe
