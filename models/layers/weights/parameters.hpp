#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/config/model_config.hpp"
#include "models/ops/linear.hpp"
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
  query_norm,      ///< [head_dim], of each query head; [heads * head_dim] if of the projection
  key_norm,        ///< [head_dim]; [kv_heads * head_dim]
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

  attention_norm_bias,  ///< [hidden]
  mlp_norm_bias,        ///< [hidden]
  final_norm_bias,      ///< [hidden]
  attention_post_norm,  ///< [hidden], of attention's output
  mlp_post_norm,        ///< [hidden], of the MLP's or the experts' output
  sinks,                ///< [heads]
  router_logit_bias,    ///< [experts], of the router's projection
  expert_gate_bias,     ///< [moe intermediate], one per expert
  expert_up_bias,       ///< [moe intermediate]
  expert_down_bias,     ///< [hidden]
  shared_router,        ///< [1, hidden]: its sigmoid is the factor of the shared MLP's output

  // For latent attention (LatentConfig), whose output is [hidden, heads * value_dim].
  query_down,       ///< [query_rank, hidden]
  query_down_norm,  ///< [query_rank]
  query_up,         ///< [heads * head_dim, query_rank]
  latent_down,      ///< [rank + rotated_dim, hidden]: the latent vector and the shared rotated key
  latent_norm,      ///< [rank]
  index_query,      ///< [index_heads * index_dim, query_rank], of the lightning indexer
  index_key,        ///< [index_dim, hidden]
  index_key_norm,   ///< [index_dim]
  index_key_norm_bias,  ///< [index_dim]
  index_weights,        ///< [index_heads, hidden]
  latent_up,  ///< [heads * (unrotated_dim + value_dim), rank]: of each head keys, then values
};

/// True for a parameter of the model, not of a layer: the embedding, the final norm and the head.
bool is_global(Parameter parameter);
/// True for a parameter of one expert.
bool is_expert(Parameter parameter);
/// True for a matrix of a layer that may be held in few bits (WeightEncoding): projections of
/// attention, of MLPs and of experts. Others choose (routers, indexers).
bool may_be_encoded(Parameter parameter);
/// How a matrix is held if `asked` of the model. The head is, if `quantize_head`, in 8 bits, fp8 or
/// int8; unset: where `asked` is of integers. Of a checkpoint that is quantised int8 and int4 are
/// for the head alone; fp8 is for GPUs, which make codes of its numbers.
WeightEncoding encoding_for(Parameter parameter, WeightEncoding asked, bool is_quantized,
                            std::optional<bool> quantize_head = {});
/// True for a parameter that Mesh::dense_group shares: of an MLP that all tokens take, or with a
/// row for each id of the vocabulary.
bool is_dense(Parameter parameter);

/// The heads by which the rules over heads cut a parameter; head_dim is one head's extent of it.
HeadLayout head_layout(Parameter parameter, const ModelConfig& config);

/// The shape of a parameter of a model. Its checkpoint may have it in a larger tensor (StoredAs).
Shape shape_of(Parameter parameter, const ModelConfig& config);

/// How a checkpoint's tensor holds a parameter.
enum class StoredAs : std::uint8_t {
  itself,         ///< the tensor is the parameter
  stacked_rows,   ///< the parameters of `stack`, one below the other
  grouped_heads,  ///< of each KV head in turn its query heads' rows, the key's and the value's
  /// [experts, input, outputs] of all experts, transposed; the outputs of the parameters of `stack`
  /// alternate. Biases are [experts, outputs].
  expert_columns,
};

/// One line of a family's table: a parameter's name in checkpoints ({layer} and {expert} stand for
/// numbers from 0) and how it is split over the tensor ranks.
struct WeightRule {
  Parameter parameter;
  std::string_view name;
  ShardRule shard;
  StoredAs stored_as = StoredAs::itself;
  std::span<const Parameter> stack = {};  ///< of stacked_rows and expert_columns, in order
  std::string_view prefix = {};           ///< of the name
};

/// The shape of the tensor that holds a rule's parameter.
Shape stored_shape(const WeightRule& rule, const ModelConfig& config);

/// The rows of that tensor, which is none of expert_columns, that are `rows` of the parameter, in
/// order; rows of heads are whole heads.
std::vector<Slice> stored_rows(const WeightRule& rule, Slice rows, const ModelConfig& config);

/// The name of a rule's tensor, with its numbers filled in.
std::string checkpoint_name(const WeightRule& rule, std::int64_t layer, std::int64_t expert);

/// The module of a layer's attention, such as "model.layers.0.self_attn": that of its output
/// matrix.
std::string attention_module(std::span<const WeightRule> rules, std::int64_t layer);

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
