// Gemma 2 and 3 (Gemma Team 2024, 2025): norms before and after each block, whose factors are one
// more than the stored weights; embeddings times the root of their width; GeGLU; windows in some
// layers. Gemma 2 caps scores and logits; Gemma 3 normalises query and key heads, and layers with a
// window have a rope of their own. Of Gemma 3 with images, the text part is read.

#include <cmath>

#include "models/config/fields.hpp"
#include "models/families/registry.hpp"
#include "models/families/weight_tables.hpp"

namespace troupe {

namespace {

constexpr std::array layer_norms = {
    WeightRule{Parameter::attention_norm, "model.layers.{layer}.input_layernorm.weight",
               ShardRule::replicated},
    WeightRule{Parameter::attention_post_norm,
               "model.layers.{layer}.post_attention_layernorm.weight", ShardRule::replicated},
    WeightRule{Parameter::mlp_norm, "model.layers.{layer}.pre_feedforward_layernorm.weight",
               ShardRule::replicated},
    WeightRule{Parameter::mlp_post_norm, "model.layers.{layer}.post_feedforward_layernorm.weight",
               ShardRule::replicated},
};

constexpr auto gemma2_weights = join_tables(global_weights, layer_norms, attention_output,
                                            grouped_query_weights, dense_mlp_weights);
constexpr auto gemma3_weights = join_tables(gemma2_weights, query_key_norms);
constexpr auto gemma3_text_weights = with_prefix(gemma3_weights, "language_model.");

/// Reads a cap; null stands for none.
Result<float> read_cap(const Fields& fields, std::string_view key, double absent) {
  TROUPE_TRY(const double cap,
             fields.number_or({key}, 0.0, 1e6, fields.mentions(key) ? 0.0 : absent));
  return static_cast<float>(cap);
}

Result<void> read_scales(const Fields& fields, ModelConfig& config) {
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  config.rounds_embedding_scale = true;
  TROUPE_TRY(const double scalar, fields.number_or({"query_pre_attn_scalar"}, 1e-6, 1e6, 256.0));
  config.attention_scale = 1.0 / std::sqrt(scalar);
  return {};
}

Result<void> read_gemma2(const Fields& fields, ModelConfig& config) {
  TROUPE_TRY(config.attention_soft_cap, read_cap(fields, "attn_logit_softcapping", 50.0));
  TROUPE_TRY(config.logit_soft_cap, read_cap(fields, "final_logit_softcapping", 30.0));
  return read_scales(fields, config);
}

Result<void> read_gemma3(const Fields& fields, ModelConfig& config) {
  TROUPE_TRY(config.attention_soft_cap, read_cap(fields, "attn_logit_softcapping", 0.0));
  TROUPE_TRY(config.logit_soft_cap, read_cap(fields, "final_logit_softcapping", 0.0));
  TROUPE_TRY(const bool both, fields.boolean_or({"use_bidirectional_attention"}, false));
  if (both) return fields.unsupported("use_bidirectional_attention", "true", "false");
  return read_scales(fields, config);
}

constexpr ConfigRules gemma2_rules{.architecture = "Gemma2ForCausalLM",
                                   .model_type = "gemma2",
                                   .default_heads = 8,
                                   .default_kv_heads = 4,
                                   .default_vocab = 256000,
                                   .default_head_dim = 256,
                                   .attention_bias = AttentionBias::as_stated,
                                   .norm = {.adds_one = true},
                                   .form = {.post_norms = true},
                                   .default_activation = "gelu_pytorch_tanh",
                                   .tied_by_default = true,
                                   .positions = 8192,
                                   .windows = WindowRules{.absent = 4096, .pattern = 2},
                                   .read_own = read_gemma2};

constexpr ConfigRules gemma3_rules() {
  ConfigRules rules = gemma2_rules;
  rules.architecture = "Gemma3ForCausalLM";
  rules.model_type = "gemma3_text";
  rules.default_vocab = 262208;
  rules.rope_theta = 1e6;
  rules.query_key_norm = QueryKeyNorm::heads;
  rules.positions = 131072;
  rules.positions_are_stretched = true;
  rules.windows = WindowRules{.absent = 4096, .pattern = 6, .rope_theta = 10000.0};
  rules.read_own = read_gemma3;
  return rules;
}

constexpr ConfigRules gemma3_text_rules() {
  ConfigRules rules = gemma3_rules();
  rules.architecture = "Gemma3ForConditionalGeneration";
  rules.model_type = "gemma3";
  rules.nested_in = "text_config";
  return rules;
}

}  // namespace

constinit const Family gemma2_family{.config = gemma2_rules, .weights = gemma2_weights};
constinit const Family gemma3_family{.config = gemma3_rules(), .weights = gemma3_weights};
constinit const Family gemma3_text_family{.config = gemma3_text_rules(),
                                          .weights = gemma3_text_weights};

}  // namespace troupe
