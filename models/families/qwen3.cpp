// Qwen3 (Yang et al. 2025), dense and with experts: pre-norm layers, grouped-query attention with
// normalised query and key heads, SwiGLU; in Qwen3-MoE some layers have experts instead.

#include "models/config/config_limits.hpp"
#include "models/config/fields.hpp"
#include "models/families/registry.hpp"
#include "models/families/weight_tables.hpp"

namespace troupe {

namespace {

constexpr auto weight_rules = join_tables(decoder_weights, grouped_query_weights, query_key_norms,
                                          dense_mlp_weights, expert_weights);

Result<void> read_experts(const Fields& fields, ModelConfig& config) {
  MoeConfig moe;
  TROUPE_TRY(moe.experts, fields.integer({"num_local_experts", "num_experts"}, 1, max_experts));
  TROUPE_TRY(moe.top_k, fields.integer({"num_experts_per_tok"}, 1, moe.experts));
  TROUPE_TRY(moe.intermediate_size, fields.integer({"moe_intermediate_size"}, 1, max_width));
  TROUPE_TRY(moe.normalize_top_k, fields.boolean_or({"norm_topk_prob"}, false));
  TROUPE_TRY(moe.sparse_step, fields.integer_or({"decoder_sparse_step"}, 1, max_layers, 1));
  TROUPE_TRY(moe.dense_layers, fields.integers({"mlp_only_layers"}, 0, config.layers - 1));
  config.moe = std::move(moe);
  return {};
}

}  // namespace

constinit const Family qwen3_family{
    .config = {.architecture = "Qwen3ForCausalLM",
               .model_type = "qwen3",
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
               .default_head_dim = 128,
               .attention_bias = AttentionBias::as_stated,
               .query_key_norm = QueryKeyNorm::heads,
               .windows =
                   WindowRules{
                       .absent = 4096, .needs_use_sliding_window = true, .max_window_layers = {}},
               .read_own = read_experts},
    .weights = weight_rules,
};

}  // namespace troupe
