// Qwen3 (Yang et al. 2025), dense and with experts: pre-norm layers, grouped-query attention with
// normalised query and key heads, SwiGLU; in Qwen3-MoE some layers have experts instead.

#include "models/config/fields.hpp"
#include "models/families/qwen_parts.hpp"
#include "models/families/registry.hpp"
#include "models/families/weight_tables.hpp"

namespace troupe {

namespace {

constexpr auto weight_rules = join_tables(decoder_weights, grouped_query_weights, query_key_norms,
                                          dense_mlp_weights, expert_weights);

Result<void> read_experts(const Fields& fields, ModelConfig& config) {
  TROUPE_TRY(config.moe, read_qwen_experts(fields, config));
  return {};
}

}  // namespace

constinit const Family qwen3_family{
    .config = {.architecture = "Qwen3ForCausalLM",
               .model_type = "qwen3",
               .default_kv_heads = 32,
               .default_head_dim = 128,
               .attention_bias = AttentionBias::as_stated,
               .query_key_norm = QueryKeyNorm::heads,
               .windows =
                   WindowRules{
                       .absent = 4096, .needs_use_sliding_window = true, .max_window_layers = 28}},
    .weights = weight_rules,
};

constinit const Family qwen3_moe_family{
    .config = {.architecture = "Qwen3MoeForCausalLM",
               .model_type = "qwen3_moe",
               .default_kv_heads = 4,
               .attention_bias = AttentionBias::as_stated,
               .query_key_norm = QueryKeyNorm::heads,
               .windows =
                   WindowRules{
                       .absent = 4096, .needs_use_sliding_window = true, .max_window_layers = {}},
               .read_own = read_experts},
    .weights = weight_rules,
};

}  // namespace troupe
