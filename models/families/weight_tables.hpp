#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "models/layers/weights/parameters.hpp"

namespace troupe {

// Weight rules common to several families, to be joined to a family's table.

/// Weights of every decoder.
inline constexpr std::array decoder_weights = {
    WeightRule{Parameter::embedding, "model.embed_tokens.weight", ShardRule::vocabulary},
    WeightRule{Parameter::attention_norm, "model.layers.{layer}.input_layernorm.weight",
               ShardRule::replicated},
    WeightRule{Parameter::output, "model.layers.{layer}.self_attn.o_proj.weight",
               ShardRule::heads_in},
    WeightRule{Parameter::mlp_norm, "model.layers.{layer}.post_attention_layernorm.weight",
               ShardRule::replicated},
    WeightRule{Parameter::final_norm, "model.norm.weight", ShardRule::replicated},
    WeightRule{Parameter::head, "lm_head.weight", ShardRule::vocabulary},
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

/// The gated MLP of dense layers.
inline constexpr std::array dense_mlp_weights = {
    WeightRule{Parameter::gate, "model.layers.{layer}.mlp.gate_proj.weight", ShardRule::column},
    WeightRule{Parameter::up, "model.layers.{layer}.mlp.up_proj.weight", ShardRule::column},
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

/// Joins tables into one, in order.
template <std::size_t... sizes>
constexpr auto join_tables(const std::array<WeightRule, sizes>&... tables) {
  std::array<WeightRule, (sizes + ...)> joined{};
  auto at = joined.begin();
  ((at = std::copy(tables.begin(), tables.end(), at)), ...);
  return joined;
}

}  // namespace troupe
