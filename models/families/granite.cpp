// Granite 3 (Granite Team 2024): Llama's layers with factors of the embedding, of what blocks add,
// of attention's scores and of logits.

#include "models/config/fields.hpp"
#include "models/families/registry.hpp"
#include "models/families/weight_tables.hpp"

namespace troupe {

namespace {

constexpr auto weight_rules =
    join_tables(decoder_weights, grouped_query_weights, dense_mlp_weights, dense_mlp_biases);

Result<void> read_factors(const Fields& fields, ModelConfig& config) {
  constexpr double least = 1e-6, most = 1e6;
  TROUPE_TRY(const double embedding, fields.number_or({"embedding_multiplier"}, least, most, 1.0));
  TROUPE_TRY(const double residual, fields.number_or({"residual_multiplier"}, least, most, 1.0));
  TROUPE_TRY(const double logits, fields.number_or({"logits_scaling"}, least, most, 1.0));
  TROUPE_TRY(config.attention_scale, fields.number_or({"attention_multiplier"}, least, most, 1.0));
  config.embedding_scale = static_cast<float>(embedding);
  config.form.residual_scale = static_cast<float>(residual);
  config.logit_scale = static_cast<float>(1.0 / logits);
  return {};
}

}  // namespace

constinit const Family granite_family{
    .config = {.architecture = "GraniteForCausalLM",
               .model_type = "granite",
               .attention_bias = AttentionBias::as_stated,
               .reads_mlp_bias = true,
               .read_own = read_factors},
    .weights = weight_rules,
};

}  // namespace troupe
