#pragma once

#include <optional>

#include "models/config/model_config.hpp"
#include "models/layers/model_limits.hpp"
#include "models/layers/moe/expert_group.hpp"
#include "models/ops/ops.hpp"
#include "parallel/experts/expert_exchange.hpp"
#include "parallel/sharding/sharding.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The buffers of an expert exchange. S and R are the layout's max_sent_rows and max_received_rows,
/// P the assignments of its max_tokens.
struct ExchangeBuffers {
  HostTensor ids;                    // [max_tokens, k] i32
  DeviceTensor sent_tokens;          // [S] i32
  DeviceTensor sent;                 // [S, hidden] activation
  DeviceTensor received;             // [R, hidden] activation
  DeviceTensor results;              // [R, hidden] f32: this rank's experts' outputs for them
  DeviceTensor returned;             // [S, hidden] f32
  DeviceTensor summed;               // [P, hidden] f32; empty unless experts are split
  DeviceTensor rows_of_assignments;  // [P] i32
};

/// The buffers of latent attention (LatentConfig), in the activation dtype.
struct LatentBuffers {
  /// A token's row has the heads' unrotated query elements, then their rotated ones, then, unless
  /// there is a query_rank, the latent and the rotated key.
  DeviceTensor projected;   // [T, heads * (unrotated_dim + rotated_dim) (+ rank + rotated_dim)]
  DeviceTensor query_down;  // [T, query_rank]; empty without one
  DeviceTensor kv;          // [T, rank + rotated_dim]; empty without a query_rank
  DeviceTensor values;      // [T, heads * value_dim]
  /// Of the lightning indexer; empty without one.
  DeviceTensor index_query;    // [T, index_heads * index_dim]
  DeviceTensor index_key;      // [T, index_dim]
  DeviceTensor index_weights;  // [T, index_heads]
};

/// The buffers of a pass, allocated once and shared by all layers, which run one after another.
/// T is max_batch_tokens, R max_head_rows; a pass uses the first rows of each. "heads", "inner" and
/// "vocab" are this rank's part; "ranks" share the vocabulary. Addresses never change.
struct Workspace {
  /// `shard`: of attention; `dense_ranks` share MLPs and vocabulary, at least shard.size.
  static Result<Workspace> create(const ModelConfig& config, const ModelLimits& limits,
                                  ShardOf shard, int dense_ranks, const ExpertGroup& experts,
                                  Ops& ops);

  DeviceTensor residual;  // [T, hidden] activation: the residual stream
  /// Output of the last block, to be added to the residual stream. [T, hidden] activation, or f32
  /// with exact sums.
  DeviceTensor update;
  DeviceTensor normed;    // [T, hidden] activation: input of a block
  DeviceTensor qkv;       // [T, (heads + 2 kv_heads) * head_dim] activation; empty with latent
  DeviceTensor query;     // [T, heads * head_dim of the cache] activation
  DeviceTensor attended;  // [T, heads * value_dim of the cache] activation
  /// [T, heads + kv_heads] f32 and [ranks * T, heads + kv_heads]; empty unless all heads of a token
  /// are normalised together, the second on one rank, too.
  DeviceTensor square_sums, all_square_sums;
  LatentBuffers latent;        // empty without latent attention
  DeviceTensor gate_up;        // [T * rows per token, 2 inner], flat, activation
  DeviceTensor activated;      // [T * rows per token, inner], flat, activation
  DeviceTensor head_residual;  // [R, hidden] activation
  DeviceTensor head_update;    // [R, hidden] as update
  DeviceTensor head_normed;    // [R, hidden] activation
  DeviceTensor local_logits;   // [R, vocab] f32; empty on one rank
  /// [ranks * R, vocab] f32, R of a tensor rank where several replicas share the vocabulary; empty
  /// on one rank.
  DeviceTensor all_logits;

  // Empty in dense models; k is top_k. X is the tokens that this rank routes: T, or what it may
  // exchange. Experts and their rows are this rank's: X * k, or as many as may arrive.
  DeviceTensor router_logits;   // [X, all experts] f32
  DeviceTensor expert_ids;      // [X, k] i32
  DeviceTensor expert_weights;  // [X, k] f32
  DeviceTensor expert_offsets;  // [experts + 1] i32
  DeviceTensor expert_source;   // [rows] i32
  /// Experts' output: [rows, hidden] activation, or f32 with exact sums; [X * k, hidden] f32 if
  /// rows of assignments are exchanged.
  DeviceTensor expert_rows;
  DeviceTensor shared_rows;       // [T, hidden] as update: output of the shared MLP
  DeviceTensor shared_activated;  // ExpertScratch::shared of max_tokens_with_shared_mlp tokens
  ExchangeBuffers exchange;       // empty unless rows of assignments are exchanged
};

/// The first rows of a flat buffer as [rows, width].
Tensor first_rows(const Tensor& buffer, std::int64_t rows, std::int64_t width);

}  // namespace troupe
