// StarCoder2 (Lozhkov et al. 2024): LayerNorm, an MLP of two matrices with GELU, biases of all
// matrices, a window in every layer.

#include "models/families/registry.hpp"
#include "models/families/weight_tables.hpp"

namespace troupe {

namespace {

constexpr std::array own_weights = {
    WeightRule{Parameter::attention_norm_bias, "model.layers.{layer}.input_layernorm.bias",
               ShardRule::replicated},
    WeightRule{Parameter::mlp_norm_bias, "model.layers.{layer}.post_attention_layernorm.bias",
               ShardRule::replicated},
    WeightRule{Parameter::final_norm_bias, "model.norm.bias", ShardRule::replicated},
    WeightRule{Parameter::up, "model.layers.{layer}.mlp.c_fc.weight", ShardRule::column},
    WeightRule{Parameter::up_bias, "model.layers.{layer}.mlp.c_fc.bias", ShardRule::column},
    WeightRule{Parameter::down, "model.layers.{layer}.mlp.c_proj.weight", ShardRule::row},
    WeightRule{Parameter::down_bias, "model.layers.{layer}.mlp.c_proj.bias", ShardRule::replicated},
};

constexpr auto weight_rules = join_tables(decoder_weights, grouped_query_weights, own_weights);

Result<void> read_own(const Fields& /*fields*/, ModelConfig& config) {
  config.mlp_bias = config.output_bias;
  return {};
}

}  // namespace

constinit const Family starcoder2_family{
    .config = {.architecture = "Starcoder2ForCausalLM",
               .model_type = "starcoder2",
               .default_kv_heads = 2,
               .attention_bias = AttentionBias::as_stated,
               .bias_key = "use_bias",
               .biased_by_default = true,
               .norm = {.kind = NormConfig::Kind::layer, .eps = 1e-5F, .has_bias = true},
               .default_activation = "gelu_pytorch_tanh",
               .gated_mlp = false,
               .tied_by_default = true,
               .positions = 4096,
               .windows = WindowRules{},
               .read_own = read_own},
    .weights = weight_rules,
};

}  // namespace troupe
