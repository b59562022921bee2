// Mixtral (Jiang et al. 2024): Mistral's layers with experts in place of every MLP.

#include "models/config/config_limits.hpp"
#include "models/config/fields.hpp"
#include "models/families/registry.hpp"
#include "models/families/weight_tables.hpp"

namespace troupe {

namespace {

constexpr std::array block_sparse_weights = {
    WeightRule{Parameter::router, "model.layers.{layer}.block_sparse_moe.gate.weight",
               ShardRule::replicated},
    WeightRule{Parameter::expert_gate,
               "model.layers.{layer}.block_sparse_moe.experts.{expert}.w1.weight",
               ShardRule::column},
    WeightRule{Parameter::expert_up,
               "model.layers.{layer}.block_sparse_moe.experts.{expert}.w3.weight",
               ShardRule::column},
    WeightRule{Parameter::expert_down,
               "model.layers.{layer}.block_sparse_moe.experts.{expert}.w2.weight", ShardRule::row},
};

constexpr auto weight_rules =
    join_tables(decoder_weights, grouped_query_weights, block_sparse_weights);

Result<void> read_experts(const Fields& fields, ModelConfig& config) {
  MoeConfig moe;
  TROUPE_TRY(moe.experts, fields.integer({"num_local_experts"}, 1, max_experts));
  TROUPE_TRY(moe.top_k, fields.integer({"num_experts_per_tok"}, 1, moe.experts));
  moe.intermediate_size = config.intermediate_size;
  moe.normalize_top_k = true;
  config.moe = std::move(moe);
  return {};
}

}  // namespace

constinit const Family mixtral_family{
    .config = {.architecture = "MixtralForCausalLM",
               .model_type = "mixtral",
               .default_kv_heads = 8,
               .norm = {.eps = 1e-5F},
               .rope_theta = 1e6,
               .windows = WindowRules{},
               .read_own = read_experts},
    .weights = weight_rules,
};

}  // namespace troupe
