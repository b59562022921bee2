// OLMo 2 (OLMo Team 2024): norms only after each block, and of all query and all key heads of a
// token together.

#include "models/families/registry.hpp"
#include "models/families/weight_tables.hpp"

namespace troupe {

namespace {

constexpr std::array norms = {
    WeightRule{Parameter::attention_post_norm,
               "model.layers.{layer}.post_attention_layernorm.weight", ShardRule::replicated},
    WeightRule{Parameter::mlp_post_norm, "model.layers.{layer}.post_feedforward_layernorm.weight",
               ShardRule::replicated},
    WeightRule{Parameter::query_norm, "model.layers.{layer}.self_attn.q_norm.weight",
               ShardRule::heads},
    WeightRule{Parameter::key_norm, "model.layers.{layer}.self_attn.k_norm.weight",
               ShardRule::kv_heads},
};

constexpr auto weight_rules =
    join_tables(global_weights, norms, attention_output, grouped_query_weights, dense_mlp_weights);

}  // namespace

constinit const Family olmo2_family{
    .config = {.architecture = "Olmo2ForCausalLM",
               .model_type = "olmo2",
               .attention_bias = AttentionBias::as_stated,
               .norm = {.eps = 1e-5F},
               .form = {.pre_norms = false, .post_norms = true},
               .query_key_norm = QueryKeyNorm::projection,
               .positions = 2048},
    .weights = weight_rules,
};

}  // namespace troupe
