#pragma once

#include "models/config/model_config.hpp"
#include "models/layers/model_limits.hpp"
#include "models/ops/ops.hpp"
#include "parallel/sharding/sharding.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The buffers of a pass, allocated once and shared by all layers, which run one after another.
/// T is max_batch_tokens, R max_head_rows; a pass uses the first rows of each. "heads", "inner" and
/// "vocab" are this rank's part. Addresses never change.
struct Workspace {
  static Result<Workspace> create(const ModelConfig& config, const ModelLimits& limits,
                                  ShardOf shard, Ops& ops);

  DeviceTensor residual;       // [T, hidden] activation: the residual stream
  DeviceTensor update;         // [T, hidden] f32: what the last block adds to it
  DeviceTensor normed;         // [T, hidden] activation: input of a block
  DeviceTensor qkv;            // [T, (heads + 2 kv_heads) * head_dim] activation
  DeviceTensor query;          // [T, heads * head_dim] activation
  DeviceTensor attended;       // [T, heads * head_dim] activation
  DeviceTensor gate_up;        // [T * rows per token, 2 inner], flat, activation
  DeviceTensor activated;      // [T * rows per token, inner], flat, activation
  DeviceTensor head_residual;  // [R, hidden] activation
  DeviceTensor head_update;    // [R, hidden] f32
  DeviceTensor head_normed;    // [R, hidden] activation
  DeviceTensor local_logits;   // [R, vocab] f32; empty on one rank
  DeviceTensor all_logits;     // [ranks * R, vocab] f32; empty on one rank

  // Empty in models without experts; k is top_k.
  DeviceTensor router_logits;   // [T, experts] f32
  DeviceTensor expert_ids;      // [T, k] i32
  DeviceTensor expert_weights;  // [T, k] f32
  DeviceTensor expert_offsets;  // [experts + 1] i32
  DeviceTensor expert_source;   // [T * k] i32
  DeviceTensor expert_rows;     // [T * k, hidden] f32: each chosen expert's output
};

/// The first rows of a flat buffer as [rows, width].
Tensor first_rows(const Tensor& buffer, std::int64_t rows, std::int64_t width);

}  // namespace troupe
