#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/config/model_config.hpp"
#include "parallel/device/tensor.hpp"
#include "parallel/sharding/sharding.hpp"

namespace troupe {

/// The roles of a decoder's weights, whatever their names in checkpoints. Matrices are [output
/// features, input features].
enum class Parameter {
  embedding,       ///< [vocab, hidden]
  attention_norm,  ///< [hidden], before attention
  query,           ///< [heads * head_dim, hidden]
  key,             ///< [kv_heads * head_dim, hidden]
  value,           ///< [kv_heads * head_dim, hidden]
  query_norm,      ///< [head_dim], of each query head
  key_norm,        ///< [head_dim]
  output,          ///< [hidden, heads * head_dim]
  query_bias,      ///< [heads * head_dim]
  key_bias,        ///< [kv_heads * head_dim]
  value_bias,      ///< [kv_heads * head_dim]
  output_bias,     ///< [hidden]
  mlp_norm,        ///< [hidden], before the MLP or the experts
  gate,            ///< [intermediate, hidden]
  up,              ///< [intermediate, hidden]
  down,            ///< [hidden, intermediate]
  gate_bias,       ///< [intermediate]
  up_bias,         ///< [intermediate]
  down_bias,       ///< [hidden]
  router,          ///< [experts, hidden]
  router_bias,     ///< [experts], added to scores for the choice of experts
  expert_gate,     ///< [moe intermediate, hidden], one per expert
  expert_up,       ///< [moe intermediate, hidden]
  expert_down,     ///< [hidden, moe intermediate]
  shared_gate,     ///< [shared intermediate, hidden], of the MLP that every token also takes
  shared_up,       ///< [shared intermediate, hidden]
  shared_down,     ///< [hidden, shared intermediate]
  final_norm,      ///< [hidden]
  head,            ///< [vocab, hidden]

  // For latent attention (LatentConfig), whose output is [hidden, heads * value_dim].
  query_down,       ///< [query_rank, hidden]
  query_down_norm,  ///< [query_rank]
  query_up,         ///< [heads * head_dim, query_rank]
  latent_down,      ///< [rank + rotated_dim, hidden]: the latent vector and the shared rotated key
  latent_norm,      ///< [rank]
  latent_up,        ///< [heads * (unrotated_dim + value_dim), rank]: of each head keys, then values
};

/// True for a parameter of the model, not of a layer: the embedding, the final norm and the head.
bool is_global(Parameter parameter);
/// True for a parameter of one expert.
bool is_expert(Parameter parameter);

/// The heads by which the rules over heads cut a parameter; head_dim is one head's extent of it.
HeadLayout head_layout(Parameter parameter, const ModelConfig& config);

/// The shape of a parameter in the checkpoint of a model.
Shape shape_of(Parameter parameter, const ModelConfig& config);

/// One line of a family's table: a parameter's name in checkpoints ({layer} and {expert} stand for
/// numbers from 0) and how it is split over the tensor ranks.
struct WeightRule {
  Parameter parameter;
  std::string_view name;
  ShardRule shard;
};

/// `rule.name` with its numbers filled in.
std::string checkpoint_name(const WeightRule& rule, std::int64_t layer, std::int64_t expert);

/// A weight of a model: a rule with its numbers (0 where the name has none).
struct WeightUse {
  const WeightRule* rule = nullptr;
  std::int64_t layer = 0;
  std::int64_t expert = 0;
};

/// Every weight of the model by the rules of its family: without the head if it is tied to the
/// embedding, with dense or expert weights as each layer has them. Points into `rules`.
std::vector<WeightUse> weights_in_use(const ModelConfig& config, std::span<const WeightRule> rules);

}  // namespace troupe
