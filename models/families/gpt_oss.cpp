// GPT-OSS (OpenAI 2025): windows in every second layer, attention sinks, biases of all matrices,
// experts with a clamped SwiGLU, which the checkpoint has in one transposed tensor a layer.

#include "models/config/config_limits.hpp"
#include "models/config/fields.hpp"
#include "models/families/registry.hpp"
#include "models/families/weight_tables.hpp"

namespace troupe {

namespace {

constexpr std::array gates_and_ups = {Parameter::expert_gate, Parameter::expert_up};
constexpr std::array gate_and_up_biases = {Parameter::expert_gate_bias, Parameter::expert_up_bias};
constexpr std::array downs = {Parameter::expert_down};
constexpr std::array down_biases = {Parameter::expert_down_bias};

constexpr std::array own_weights = {
    WeightRule{Parameter::sinks, "model.layers.{layer}.self_attn.sinks", ShardRule::heads},
    WeightRule{Parameter::router, "model.layers.{layer}.mlp.router.weight", ShardRule::replicated},
    WeightRule{Parameter::router_logit_bias, "model.layers.{layer}.mlp.router.bias",
               ShardRule::replicated},
    WeightRule{Parameter::expert_gate, "model.layers.{layer}.mlp.experts.gate_up_proj",
               ShardRule::column, StoredAs::expert_columns, gates_and_ups},
    WeightRule{Parameter::expert_up, "model.layers.{layer}.mlp.experts.gate_up_proj",
               ShardRule::column, StoredAs::expert_columns, gates_and_ups},
    WeightRule{Parameter::expert_gate_bias, "model.layers.{layer}.mlp.experts.gate_up_proj_bias",
               ShardRule::column, StoredAs::expert_columns, gate_and_up_biases},
    WeightRule{Parameter::expert_up_bias, "model.layers.{layer}.mlp.experts.gate_up_proj_bias",
               ShardRule::column, StoredAs::expert_columns, gate_and_up_biases},
    WeightRule{Parameter::expert_down, "model.layers.{layer}.mlp.experts.down_proj", ShardRule::row,
               StoredAs::expert_columns, downs},
    WeightRule{Parameter::expert_down_bias, "model.layers.{layer}.mlp.experts.down_proj_bias",
               ShardRule::replicated, StoredAs::expert_columns, down_biases},
};

constexpr auto weight_rules = join_tables(decoder_weights, grouped_query_weights, own_weights);

constexpr std::string_view rope_scaling = R"({
  "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
  "original_max_position_embeddings": 4096})";

Result<void> read_own(const Fields& fields, ModelConfig& config) {
  TROUPE_TRY(const double limit, fields.number_or({"swiglu_limit"}, 0.0, 1e6, 7.0));
  if (limit != 7.0) return fields.unsupported("swiglu_limit", fmt::to_string(limit), "7");
  config.activation = Activation::clamped_gated;
  config.attention_sinks = true;
  MoeConfig moe;
  TROUPE_TRY(moe.experts, fields.integer({"num_local_experts", "num_experts"}, 1, max_experts));
  TROUPE_TRY(moe.top_k, fields.integer({"num_experts_per_tok"}, 1, moe.experts));
  moe.intermediate_size = config.intermediate_size;
  moe.normalize_top_k = true;  // a softmax over the chosen ones
  moe.logit_bias = true;
  moe.expert_bias = true;
  config.moe = std::move(moe);
  return {};
}

}  // namespace

constinit const Family gpt_oss_family{
    .config = {.architecture = "GptOssForCausalLM",
               .model_type = "gpt_oss",
               .default_kv_heads = 8,
               .default_head_dim = 64,
               .attention_bias = AttentionBias::as_stated,
               .biased_by_default = true,
               .norm = {.eps = 1e-5F},
               .rope_theta = 150000.0,
               .default_rope_scaling = rope_scaling,
               .windows = WindowRules{.absent = 128, .pattern = 2},
               .read_own = read_own},
    .weights = weight_rules,
};

}  // namespace troupe
