// Command-R (Cohere 2024): attention and MLP side by side after one LayerNorm without bias, rope
// whose pairs lie side by side, logits times a factor.

#include "models/config/config_limits.hpp"
#include "models/config/fields.hpp"
#include "models/families/registry.hpp"
#include "models/families/weight_tables.hpp"

namespace troupe {

namespace {

constexpr std::array norms = {
    WeightRule{Parameter::attention_norm, "model.layers.{layer}.input_layernorm.weight",
               ShardRule::replicated},
};

constexpr auto weight_rules =
    join_tables(global_weights, norms, attention_output, grouped_query_weights, dense_mlp_weights);

Result<void> read_own(const Fields& fields, ModelConfig& config) {
  TROUPE_TRY(const bool norms_heads, fields.boolean_or({"use_qk_norm"}, false));
  if (norms_heads) return fields.unsupported("use_qk_norm", "true", "false");
  TROUPE_TRY(const double scale, fields.number_or({"logit_scale"}, 1e-6, 1e6, 0.0625));
  config.logit_scale = static_cast<float>(scale);
  // The published files have their longest sequence here, and max_position_embeddings is less.
  TROUPE_TRY(
      config.max_position_embeddings,
      fields.integer_or({"model_max_length"}, 1, max_positions, config.max_position_embeddings));
  return {};
}

}  // namespace

constinit const Family command_r_family{
    .config = {.architecture = "CohereForCausalLM",
               .model_type = "cohere",
               .attention_bias = AttentionBias::as_stated,
               .norm = {.kind = NormConfig::Kind::layer, .eps = 1e-5F},
               .form = {.parallel = true, .own_mlp_norm = false},
               .tied_by_default = true,
               .interleaved_rope = true,
               .positions = 8192,
               .read_own = read_own},
    .weights = weight_rules,
};

}  // namespace troupe
