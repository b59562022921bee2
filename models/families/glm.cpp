// GLM-4 (GLM Team 2024): rope of the first half of each head; in the dense models its pairs lie
// side by side, and the checkpoint has gate and up in one tensor. GLM-4-0414 has norms after the
// blocks, too. GLM-4.5 has DeepSeek-V3's experts, and may normalise query and key heads.

#include "models/config/fields.hpp"
#include "models/families/deepseek_parts.hpp"
#include "models/families/registry.hpp"
#include "models/families/weight_tables.hpp"

namespace troupe {

namespace {

constexpr std::array post_norms = {
    WeightRule{Parameter::attention_post_norm,
               "model.layers.{layer}.post_self_attn_layernorm.weight", ShardRule::replicated},
    WeightRule{Parameter::mlp_post_norm, "model.layers.{layer}.post_mlp_layernorm.weight",
               ShardRule::replicated},
};

constexpr auto glm_weights =
    join_tables(decoder_weights, grouped_query_weights, stacked_mlp_weights);
constexpr auto glm4_weights = join_tables(glm_weights, post_norms);
constexpr auto glm4_moe_weights =
    join_tables(decoder_weights, grouped_query_weights, query_key_norms, dense_mlp_weights,
                expert_weights, choice_bias, shared_expert_weights);

Result<void> read_glm4_moe(const Fields& fields, ModelConfig& config) {
  TROUPE_TRY(const bool norms, fields.boolean_or({"use_qk_norm"}, false));
  if (norms) config.query_key_norm = QueryKeyNorm::heads;
  return read_sigmoid_experts(fields, {.weight_scale = 1.0, .dense_layers = 1}, config);
}

constexpr ConfigRules glm_rules{.architecture = "GlmForCausalLM",
                                .model_type = "glm",
                                .default_kv_heads = 2,
                                .default_head_dim = 128,
                                .attention_bias = AttentionBias::stated_qkv,
                                .biased_by_default = true,
                                .norm = {.eps = 1.5625e-07F},
                                .rotary_part = 0.5,
                                .interleaved_rope = true,
                                .positions = 131072};

constexpr ConfigRules glm4_rules() {
  ConfigRules rules = glm_rules;
  rules.architecture = "Glm4ForCausalLM";
  rules.model_type = "glm4";
  rules.form.post_norms = true;
  return rules;
}

}  // namespace

constinit const Family glm_family{.config = glm_rules, .weights = glm_weights};
constinit const Family glm4_family{.config = glm4_rules(), .weights = glm4_weights};

constinit const Family glm4_moe_family{
    .config = {.architecture = "Glm4MoeForCausalLM",
               .model_type = "glm4_moe",
               .default_kv_heads = 8,
               .attention_bias = AttentionBias::stated_qkv,
               .norm = {.eps = 1e-5F},
               .rotary_part = 0.5,
               .positions = 131072,
               .read_own = read_glm4_moe},
    .weights = glm4_moe_weights,
};

}  // namespace troupe
