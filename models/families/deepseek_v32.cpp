// DeepSeek-V3.2 (DeepSeek-AI 2025): DeepSeek-V3 with sparse attention, whose lightning indexer
// chooses the keys that a row attends to (section 2.1).

#include "models/config/config_limits.hpp"
#include "models/families/deepseek_parts.hpp"
#include "models/families/registry.hpp"
#include "models/families/weight_tables.hpp"

namespace troupe {

namespace {

constexpr auto weight_rules =
    join_tables(decoder_weights, latent_weights, indexer_weights, dense_mlp_weights, expert_weights,
                choice_bias, shared_expert_weights);

/// Values of absent keys are those of transformers 5.24.0.
Result<void> read_sparse_heads(const Fields& fields, ModelConfig& config) {
  TROUPE_CHECK(read_latent_heads(fields, config));
  LatentConfig& latent = *config.latent;
  if (latent.query_rank == 0) return fields.unsupported("q_lora_rank", "null", "a number");
  TROUPE_TRY(latent.index_heads, fields.integer_or({"index_n_heads"}, 1, max_width, 64));
  TROUPE_TRY(latent.index_dim, fields.integer_or({"index_head_dim"}, 2, max_width, 128));
  TROUPE_TRY(latent.index_top_k, fields.integer_or({"index_topk"}, 1, max_positions, 2048));
  if (latent.index_dim < latent.rotated_dim) {
    return fail(ErrorCode::corrupt_data,
                "{}: index_head_dim is {}, less than the {} elements that rope rotates "
                "(qk_rope_head_dim)",
                fields.where(), latent.index_dim, latent.rotated_dim);
  }
  return {};
}

/// Refuses a list of MLP types that says otherwise than first_k_dense_replace.
Result<void> check_mlp_types(const Fields& fields, const ModelConfig& config) {
  const nlohmann::json* types = fields.find({"mlp_layer_types"});
  if (types == nullptr) return {};
  nlohmann::json expected = nlohmann::json::array();
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    expected.push_back(config.is_sparse(layer) ? "sparse" : "dense");
  }
  if (*types == expected) return {};
  return fields.unsupported("mlp_layer_types", types->dump(),
                            "first_k_dense_replace dense ones, then sparse ones");
}

Result<void> read_experts(const Fields& fields, ModelConfig& config) {
  TROUPE_CHECK(read_sigmoid_experts(fields, {.weight_scale = 2.5, .dense_layers = 3}, config));
  return check_mlp_types(fields, config);
}

}  // namespace

constinit const Family deepseek_v32_family{
    .config = {.architecture = "DeepseekV32ForCausalLM",
               .model_type = "deepseek_v32",
               .attention_bias = AttentionBias::refused,
               .full_layer_type = "indexed_attention",
               .read_heads = read_sparse_heads,
               .read_own = read_experts},
    .weights = weight_rules,
};

}  // namespace troupe
