// DeepSeek-V3 (DeepSeek-AI 2024): multi-head latent attention; the first layers are dense, the
// others have routed experts and a shared one. Its layers for multi-token prediction are not read.

#include "models/families/deepseek_parts.hpp"
#include "models/families/registry.hpp"
#include "models/families/weight_tables.hpp"

namespace troupe {

namespace {

constexpr auto weight_rules = join_tables(decoder_weights, latent_weights, dense_mlp_weights,
                                          expert_weights, choice_bias, shared_expert_weights);

Result<void> read_experts(const Fields& fields, ModelConfig& config) {
  return read_sigmoid_experts(fields, {.weight_scale = 2.5, .dense_layers = 3}, config);
}

}  // namespace

constinit const Family deepseek_v3_family{
    .config = {.architecture = "DeepseekV3ForCausalLM",
               .model_type = "deepseek_v3",
               .attention_bias = AttentionBias::refused,
               .read_heads = read_latent_heads,
               .read_own = read_experts},
    .weights = weight_rules,
};

}  // namespace troupe
