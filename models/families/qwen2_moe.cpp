// Qwen2-MoE (Yang et al. 2024): Qwen2's attention; experts and beside them an MLP that every token
// takes, times the sigmoid of a projection of the token.

#include "models/config/config_limits.hpp"
#include "models/config/fields.hpp"
#include "models/families/qwen_parts.hpp"
#include "models/families/registry.hpp"
#include "models/families/weight_tables.hpp"

namespace troupe {

namespace {

constexpr std::array shared_weights = {
    WeightRule{Parameter::shared_gate, "model.layers.{layer}.mlp.shared_expert.gate_proj.weight",
               ShardRule::column},
    WeightRule{Parameter::shared_up, "model.layers.{layer}.mlp.shared_expert.up_proj.weight",
               ShardRule::column},
    WeightRule{Parameter::shared_down, "model.layers.{layer}.mlp.shared_expert.down_proj.weight",
               ShardRule::row},
    WeightRule{Parameter::shared_router, "model.layers.{layer}.mlp.shared_expert_gate.weight",
               ShardRule::replicated},
};

constexpr auto weight_rules = join_tables(decoder_weights, grouped_query_weights, dense_mlp_weights,
                                          expert_weights, shared_weights);

Result<void> read_experts(const Fields& fields, ModelConfig& config) {
  TROUPE_TRY(MoeConfig moe, read_qwen_experts(fields, config));
  TROUPE_TRY(moe.shared_intermediate_size,
             fields.integer({"shared_expert_intermediate_size"}, 1, max_width));
  moe.gated_shared_expert = true;
  config.moe = std::move(moe);
  return {};
}

}  // namespace

constinit const Family qwen2_moe_family{
    .config = {.architecture = "Qwen2MoeForCausalLM",
               .model_type = "qwen2_moe",
               .default_kv_heads = 16,
               .attention_bias = AttentionBias::stated_qkv,
               .bias_key = "qkv_bias",
               .biased_by_default = true,
               .windows =
                   WindowRules{
                       .absent = 4096, .needs_use_sliding_window = true, .max_window_layers = {}},
               .read_own = read_experts},
    .weights = weight_rules,
};

}  // namespace troupe
