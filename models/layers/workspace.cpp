#include "models/layers/workspace.hpp"

#include <algorithm>
#include <cassert>

namespace troupe {

namespace {

Result<void> allocate_experts(const MoeConfig& moe, std::int64_t hidden, std::int64_t tokens,
                              Ops& ops, Workspace& space) {
  const std::int64_t rows = tokens * moe.top_k;
  TROUPE_TRY(space.router_logits, ops.allocate(DType::f32, {tokens, moe.experts}));
  TROUPE_TRY(space.expert_ids, ops.allocate(DType::i32, {tokens, moe.top_k}));
  TROUPE_TRY(space.expert_weights, ops.allocate(DType::f32, {tokens, moe.top_k}));
  TROUPE_TRY(space.expert_offsets, ops.allocate(DType::i32, {moe.experts + 1}));
  TROUPE_TRY(space.expert_source, ops.allocate(DType::i32, {rows}));
  TROUPE_TRY(space.expert_rows, ops.allocate(DType::f32, {rows, hidden}));
  return {};
}

/// Elements that a pass's gated MLPs need at most, for one of gate and up.
std::int64_t inner_elements(const ModelConfig& config, std::int64_t tokens, int ranks) {
  std::int64_t per_token = 0;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const bool sparse = config.is_sparse(layer);
    const std::int64_t inner =
        sparse ? config.moe->top_k * config.moe->intermediate_size : config.intermediate_size;
    per_token = std::max(per_token, inner / ranks);
  }
  return tokens * per_token;
}

}  // namespace

Result<Workspace> Workspace::create(const ModelConfig& config, const ModelLimits& limits,
                                    ShardOf shard, Ops& ops) {
  const DType activation = ops.activation_dtype();
  const std::int64_t tokens = limits.max_batch_tokens;
  const std::int64_t rows = limits.max_head_rows;
  const std::int64_t hidden = config.hidden_size;
  const HeadLayout layout{config.heads, config.kv_heads, config.head_dim};
  TROUPE_TRY(const QkvRows qkv, qkv_rows(layout, shard));
  const std::int64_t inner = inner_elements(config, tokens, shard.size);

  Workspace space;
  TROUPE_TRY(space.residual, ops.allocate(activation, {tokens, hidden}));
  TROUPE_TRY(space.update, ops.allocate(DType::f32, {tokens, hidden}));
  TROUPE_TRY(space.normed, ops.allocate(activation, {tokens, hidden}));
  TROUPE_TRY(space.qkv, ops.allocate(activation, {tokens, qkv.total()}));
  TROUPE_TRY(space.query, ops.allocate(activation, {tokens, qkv.q.count}));
  TROUPE_TRY(space.attended, ops.allocate(activation, {tokens, qkv.q.count}));
  TROUPE_TRY(space.gate_up, ops.allocate(activation, {2 * inner}));
  TROUPE_TRY(space.activated, ops.allocate(activation, {inner}));
  TROUPE_TRY(space.head_residual, ops.allocate(activation, {rows, hidden}));
  TROUPE_TRY(space.head_update, ops.allocate(DType::f32, {rows, hidden}));
  TROUPE_TRY(space.head_normed, ops.allocate(activation, {rows, hidden}));
  if (shard.size > 1) {
    const std::int64_t vocab = ceil_slice(config.vocab_size, {0, shard.size}).count;
    TROUPE_TRY(space.local_logits, ops.allocate(DType::f32, {rows, vocab}));
    TROUPE_TRY(space.all_logits, ops.allocate(DType::f32, {shard.size * rows, vocab}));
  }
  if (config.moe) TROUPE_CHECK(allocate_experts(*config.moe, hidden, tokens, ops, space));
  return space;
}

Tensor first_rows(const Tensor& buffer, std::int64_t rows, std::int64_t width) {
  assert(rows * width <= buffer.elements());
  return {buffer.data(), buffer.dtype(), {rows, width}};
}

}  // namespace troupe
