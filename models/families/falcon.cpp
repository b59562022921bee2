// Falcon (Almazrouei et al. 2023): LayerNorm, attention and MLP side by side after one or two norms
// (in the smallest models one after the other), an MLP of two matrices with GELU; the checkpoint
// has queries, keys and values in one tensor, KV head by KV head.

#include "models/config/config_limits.hpp"
#include "models/config/fields.hpp"
#include "models/families/registry.hpp"
#include "models/families/weight_tables.hpp"

namespace troupe {

namespace {

constexpr std::string_view qkv = "transformer.h.{layer}.self_attention.query_key_value.weight";
constexpr std::string_view qkv_bias = "transformer.h.{layer}.self_attention.query_key_value.bias";

constexpr std::array common_weights = {
    WeightRule{Parameter::embedding, "transformer.word_embeddings.weight", ShardRule::vocabulary},
    WeightRule{Parameter::final_norm, "transformer.ln_f.weight", ShardRule::replicated},
    WeightRule{Parameter::final_norm_bias, "transformer.ln_f.bias", ShardRule::replicated},
    WeightRule{Parameter::head, "lm_head.weight", ShardRule::vocabulary},
    WeightRule{Parameter::query, qkv, ShardRule::heads, StoredAs::grouped_heads},
    WeightRule{Parameter::key, qkv, ShardRule::kv_heads, StoredAs::grouped_heads},
    WeightRule{Parameter::value, qkv, ShardRule::kv_heads, StoredAs::grouped_heads},
    WeightRule{Parameter::query_bias, qkv_bias, ShardRule::heads, StoredAs::grouped_heads},
    WeightRule{Parameter::key_bias, qkv_bias, ShardRule::kv_heads, StoredAs::grouped_heads},
    WeightRule{Parameter::value_bias, qkv_bias, ShardRule::kv_heads, StoredAs::grouped_heads},
    WeightRule{Parameter::output, "transformer.h.{layer}.self_attention.dense.weight",
               ShardRule::heads_in},
    WeightRule{Parameter::output_bias, "transformer.h.{layer}.self_attention.dense.bias",
               ShardRule::replicated},
    WeightRule{Parameter::up, "transformer.h.{layer}.mlp.dense_h_to_4h.weight", ShardRule::column},
    WeightRule{Parameter::up_bias, "transformer.h.{layer}.mlp.dense_h_to_4h.bias",
               ShardRule::column},
    WeightRule{Parameter::down, "transformer.h.{layer}.mlp.dense_4h_to_h.weight", ShardRule::row},
    WeightRule{Parameter::down_bias, "transformer.h.{layer}.mlp.dense_4h_to_h.bias",
               ShardRule::replicated},
};

/// The norms of layers that have one before attention, and one before an MLP that follows it.
constexpr std::array norms = {
    WeightRule{Parameter::attention_norm, "transformer.h.{layer}.input_layernorm.weight",
               ShardRule::replicated},
    WeightRule{Parameter::attention_norm_bias, "transformer.h.{layer}.input_layernorm.bias",
               ShardRule::replicated},
    WeightRule{Parameter::mlp_norm, "transformer.h.{layer}.post_attention_layernorm.weight",
               ShardRule::replicated},
    WeightRule{Parameter::mlp_norm_bias, "transformer.h.{layer}.post_attention_layernorm.bias",
               ShardRule::replicated},
};

/// The norms of blocks side by side that have one each.
constexpr std::array parallel_norms = {
    WeightRule{Parameter::attention_norm, "transformer.h.{layer}.ln_attn.weight",
               ShardRule::replicated},
    WeightRule{Parameter::attention_norm_bias, "transformer.h.{layer}.ln_attn.bias",
               ShardRule::replicated},
    WeightRule{Parameter::mlp_norm, "transformer.h.{layer}.ln_mlp.weight", ShardRule::replicated},
    WeightRule{Parameter::mlp_norm_bias, "transformer.h.{layer}.ln_mlp.bias",
               ShardRule::replicated},
};

constexpr auto weight_rules = join_tables(common_weights, norms);
constexpr auto parallel_weight_rules = join_tables(common_weights, parallel_norms);

std::span<const WeightRule> choose_weights(const ModelConfig& config) {
  if (config.form.parallel && config.form.own_mlp_norm) return parallel_weight_rules;
  return weight_rules;
}

Result<void> read_heads(const Fields& fields, ModelConfig& config) {
  TROUPE_TRY(const bool groups, fields.boolean_or({"new_decoder_architecture"}, false));
  TROUPE_TRY(const bool one, fields.boolean_or({"multi_query"}, true));
  if (groups) {
    TROUPE_TRY(config.kv_heads, fields.integer_or({"num_kv_heads"}, 1, config.heads, config.heads));
  } else {
    config.kv_heads = one ? 1 : config.heads;
  }
  config.head_dim = config.hidden_size / config.heads;
  if (config.heads % config.kv_heads == 0 && config.hidden_size % config.heads == 0 &&
      config.head_dim % 2 == 0) {
    return {};
  }
  return fail(ErrorCode::corrupt_data,
              "{}: {} heads and {} KV heads do not divide hidden_size {} into even parts",
              fields.where(), config.heads, config.kv_heads, config.hidden_size);
}

Result<void> read_own(const Fields& fields, ModelConfig& config) {
  TROUPE_TRY(const bool alibi, fields.boolean_or({"alibi"}, false));
  if (alibi) return fields.unsupported("alibi", "true", "false");
  TROUPE_TRY(const bool groups, fields.boolean_or({"new_decoder_architecture"}, false));
  TROUPE_TRY(config.form.parallel, fields.boolean_or({"parallel_attn"}, true));
  TROUPE_TRY(const std::int64_t norms_of_layer,
             fields.integer_or({"num_ln_in_parallel_attn"}, 1, 2, groups ? 2 : 1));
  if (groups && !config.form.parallel) {
    return fields.unsupported("parallel_attn", "false", "true with new_decoder_architecture");
  }
  config.form.own_mlp_norm = !config.form.parallel || norms_of_layer == 2;
  if (config.form.parallel && norms_of_layer == 2 && !groups) {
    return fields.unsupported("num_ln_in_parallel_attn", "2", "1 without new_decoder_architecture");
  }
  config.mlp_bias = config.output_bias;
  return {};
}

}  // namespace

constinit const Family falcon_family{
    .config = {.architecture = "FalconForCausalLM",
               .model_type = "falcon",
               .attention_bias = AttentionBias::as_stated,
               .bias_key = "bias",
               .quadruple_mlp = true,
               .norm = {.kind = NormConfig::Kind::layer, .eps = 1e-5F, .has_bias = true},
               .default_activation = "gelu",
               .gated_mlp = false,
               .tied_by_default = true,
               .positions = 2048,
               .read_heads = read_heads,
               .read_own = read_own},
    .weights = weight_rules,
    .choose_weights = choose_weights,
};

}  // namespace troupe
