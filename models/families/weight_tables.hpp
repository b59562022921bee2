#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "models/layers/weights/parameters.hpp"

namespace troupe {

// Weight rules common to several families, to be joined to a family's table.

/// Weights of the model itself.
inline constexpr std::array global_weights = {
    WeightRule{Parameter::embedding, "model.embed_tokens.weight", ShardRule::vocabulary},
    WeightRule{Parameter::final_norm, "model.norm.weight", ShardRule::replicated},
    WeightRule{Parameter::head, "lm_head.weight", ShardRule::vocabulary},
};

inline constexpr std::array attention_output = {
    WeightRule{Parameter::output, "model.layers.{layer}.self_attn.o_proj.weight",
               ShardRule::heads_in},
};

/// The norms before attention and MLP.
inline constexpr std::array pre_norms = {
    WeightRule{Parameter::attention_norm, "model.layers.{layer}.input_layernorm.weight",
               ShardRule::replicated},
    WeightRule{Parameter::mlp_norm, "model.layers.{layer}.post_attention_layernorm.weight",
               ShardRule::replicated},
};

/// Grouped-query attention's projections and, if configured, their biases.
inline constexpr std::array grouped_query_weights = {
    WeightRule{Parameter::query, "model.layers.{layer}.self_attn.q_proj.weight", ShardRule::heads},
    WeightRule{Parameter::key, "model.layers.{layer}.self_attn.k_proj.weight", ShardRule::kv_heads},
    WeightRule{Parameter::value, "model.layers.{layer}.self_attn.v_proj.weight",
               ShardRule::kv_heads},
    WeightRule{Parameter::query_bias, "model.layers.{layer}.self_attn.q_proj.bias",
               ShardRule::heads},
    WeightRule{Parameter::key_bias, "model.layers.{layer}.self_attn.k_proj.bias",
               ShardRule::kv_heads},
    WeightRule{Parameter::value_bias, "model.layers.{layer}.self_attn.v_proj.bias",
               ShardRule::kv_heads},
    WeightRule{Parameter::output_bias, "model.layers.{layer}.self_attn.o_proj.bias",
               ShardRule::replicated},
};

/// Norms of queries and keys.
inline constexpr std::array query_key_norms = {
    WeightRule{Parameter::query_norm, "model.layers.{layer}.self_attn.q_norm.weight",
               ShardRule::replicated},
    WeightRule{Parameter::key_norm, "model.layers.{layer}.self_attn.k_norm.weight",
               ShardRule::replicated},
};

/// The gated MLP of dense layers.
inline constexpr std::array dense_mlp_weights = {
    WeightRule{Parameter::gate, "model.layers.{layer}.mlp.gate_proj.weight", ShardRule::column},
    WeightRule{Parameter::up, "model.layers.{layer}.mlp.up_proj.weight", ShardRule::column},
    WeightRule{Parameter::down, "model.layers.{layer}.mlp.down_proj.weight", ShardRule::row},
};

inline constexpr std::array qkv_stack = {Parameter::query, Parameter::key, Parameter::value};
inline constexpr std::array gate_up_stack = {Parameter::gate, Parameter::up};

/// Grouped-query attention's projections in one tensor.
inline constexpr std::array stacked_query_weights = {
    WeightRule{Parameter::query, "model.layers.{layer}.self_attn.qkv_proj.weight", ShardRule::heads,
               StoredAs::stacked_rows, qkv_stack},
    WeightRule{Parameter::key, "model.layers.{layer}.self_attn.qkv_proj.weight",
               ShardRule::kv_heads, StoredAs::stacked_rows, qkv_stack},
    WeightRule{Parameter::value, "model.layers.{layer}.self_attn.qkv_proj.weight",
               ShardRule::kv_heads, StoredAs::stacked_rows, qkv_stack},
};

/// The gated MLP with gate and up in one tensor.
inline constexpr std::array stacked_mlp_weights = {
    WeightRule{Parameter::gate, "model.layers.{layer}.mlp.gate_up_proj.weight", ShardRule::column,
               StoredAs::stacked_rows, gate_up_stack},
    WeightRule{Parameter::up, "model.layers.{layer}.mlp.gate_up_proj.weight", ShardRule::column,
               StoredAs::stacked_rows, gate_up_stack},
    WeightRule{Parameter::down, "model.layers.{layer}.mlp.down_proj.weight", ShardRule::row},
};

/// The biases of a dense MLP, if configured.
inline constexpr std::array dense_mlp_biases = {
    WeightRule{Parameter::gate_bias, "model.layers.{layer}.mlp.gate_proj.bias", ShardRule::column},
    WeightRule{Parameter::up_bias, "model.layers.{layer}.mlp.up_proj.bias", ShardRule::column},
    WeightRule{Parameter::down_bias, "model.layers.{layer}.mlp.down_proj.bias",
               ShardRule::replicated},
};

/// The experts of sparse layers, with Qwen's and DeepSeek's names.
inline constexpr std::array expert_weights = {
    WeightRule{Parameter::router, "model.layers.{layer}.mlp.gate.weight", ShardRule::replicated},
    WeightRule{Parameter::expert_gate, "model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight",
               ShardRule::column},
    WeightRule{Parameter::expert_up, "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight",
               ShardRule::column},
    WeightRule{Parameter::expert_down, "model.layers.{layer}.mlp.experts.{expert}.down_proj.weight",
               ShardRule::row},
};

/// DeepSeek's bias for the choice of experts, and its shared experts.
inline constexpr std::array choice_bias = {
    WeightRule{Parameter::router_bias, "model.layers.{layer}.mlp.gate.e_score_correction_bias",
               ShardRule::replicated},
};
inline constexpr std::array shared_expert_weights = {
    WeightRule{Parameter::shared_gate, "model.layers.{layer}.mlp.shared_experts.gate_proj.weight",
               ShardRule::column},
    WeightRule{Parameter::shared_up, "model.layers.{layer}.mlp.shared_experts.up_proj.weight",
               ShardRule::column},
    WeightRule{Parameter::shared_down, "model.layers.{layer}.mlp.shared_experts.down_proj.weight",
               ShardRule::row},
};

/// Multi-head latent attention's projections.
inline constexpr std::array latent_weights = {
    WeightRule{Parameter::query, "model.layers.{layer}.self_attn.q_proj.weight", ShardRule::heads},
    WeightRule{Parameter::query_down, "model.layers.{layer}.self_attn.q_a_proj.weight",
               ShardRule::replicated},
    WeightRule{Parameter::query_down_norm, "model.layers.{layer}.self_attn.q_a_layernorm.weight",
               ShardRule::replicated},
    WeightRule{Parameter::query_up, "model.layers.{layer}.self_attn.q_b_proj.weight",
               ShardRule::heads},
    WeightRule{Parameter::latent_down, "model.layers.{layer}.self_attn.kv_a_proj_with_mqa.weight",
               ShardRule::replicated},
    WeightRule{Parameter::latent_norm, "model.layers.{layer}.self_attn.kv_a_layernorm.weight",
               ShardRule::replicated},
    WeightRule{Parameter::latent_up, "model.layers.{layer}.self_attn.kv_b_proj.weight",
               ShardRule::heads},
};

/// The lightning indexer of sparse latent attention. Every rank has all of it, because all choose
/// the same keys.
inline constexpr std::array indexer_weights = {
    WeightRule{Parameter::index_query, "model.layers.{layer}.self_attn.indexer.wq_b.weight",
               ShardRule::replicated},
    WeightRule{Parameter::index_key, "model.layers.{layer}.self_attn.indexer.wk.weight",
               ShardRule::replicated},
    WeightRule{Parameter::index_key_norm, "model.layers.{layer}.self_attn.indexer.k_norm.weight",
               ShardRule::replicated},
    WeightRule{Parameter::index_key_norm_bias, "model.layers.{layer}.self_attn.indexer.k_norm.bias",
               ShardRule::replicated},
    WeightRule{Parameter::index_weights,
               "model.layers.{layer}.self_attn.indexer.weights_proj.weight", ShardRule::replicated},
};

/// Joins tables into one, in order.
template <std::size_t... sizes>
constexpr auto join_tables(const std::array<WeightRule, sizes>&... tables) {
  std::array<WeightRule, (sizes + ...)> joined{};
  auto at = joined.begin();
  ((at = std::copy(tables.begin(), tables.end(), at)), ...);
  return joined;
}

/// Weights of decoders whose layers have norms before their blocks.
inline constexpr auto decoder_weights = join_tables(global_weights, pre_norms, attention_output);

/// The same table with `prefix` before all names.
template <std::size_t size>
constexpr auto with_prefix(std::array<WeightRule, size> table, std::string_view prefix) {
  for (WeightRule& rule : table) rule.prefix = prefix;
  return table;
}

}  // namespace troupe
