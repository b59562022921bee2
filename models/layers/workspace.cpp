#include "models/layers/workspace.hpp"

#include <algorithm>
#include <cassert>

namespace troupe {

namespace {

/// What a rank does for experts in one pass.
struct ExpertWork {
  std::int64_t tokens = 0;   ///< that it routes
  std::int64_t experts = 0;  ///< that it holds, whole or in part
  std::int64_t rows = 0;     ///< that come to them
  int parts = 1;             ///< that each expert is split into
};

ExpertWork expert_work(const MoeConfig& moe, std::int64_t tokens, int tensor_size,
                       const std::optional<ExpertLayout>& exchange) {
  if (!exchange) return {tokens, moe.experts, tokens * moe.top_k, tensor_size};
  return {exchange->most_tokens, exchange->local_experts(), exchange->most_received_rows(),
          exchange->parts};
}

Result<void> allocate_experts(const MoeConfig& moe, const ExpertWork& work, std::int64_t hidden,
                              Ops& ops, Workspace& space) {
  TROUPE_TRY(space.router_logits, ops.allocate(DType::f32, {work.tokens, moe.experts}));
  TROUPE_TRY(space.expert_ids, ops.allocate(DType::i32, {work.tokens, moe.top_k}));
  TROUPE_TRY(space.expert_weights, ops.allocate(DType::f32, {work.tokens, moe.top_k}));
  TROUPE_TRY(space.expert_offsets, ops.allocate(DType::i32, {work.experts + 1}));
  TROUPE_TRY(space.expert_source, ops.allocate(DType::i32, {work.rows}));
  TROUPE_TRY(space.expert_rows, ops.allocate(DType::f32, {work.tokens * moe.top_k, hidden}));
  return {};
}

Result<void> allocate_exchange(const ExpertLayout& layout, std::int64_t hidden, Ops& ops,
                               ExchangeBuffers& buffers) {
  const DType activation = ops.activation_dtype();
  const std::int64_t sent = layout.most_sent_rows();
  const std::int64_t received = layout.most_received_rows();
  const std::int64_t pairs = layout.most_tokens * layout.top_k;
  buffers.ids = HostTensor(DType::i32, {layout.most_tokens, layout.top_k});
  TROUPE_TRY(buffers.sent_tokens, ops.allocate(DType::i32, {sent}));
  TROUPE_TRY(buffers.sent, ops.allocate(activation, {sent, hidden}));
  TROUPE_TRY(buffers.received, ops.allocate(activation, {received, hidden}));
  TROUPE_TRY(buffers.results, ops.allocate(DType::f32, {received, hidden}));
  TROUPE_TRY(buffers.returned, ops.allocate(DType::f32, {sent, hidden}));
  if (layout.parts > 1) {
    TROUPE_TRY(buffers.summed, ops.allocate(DType::f32, {pairs, hidden}));
  }
  TROUPE_TRY(buffers.rows_of_pairs, ops.allocate(DType::i32, {pairs}));
  return {};
}

/// Elements that a pass's gated MLPs need at most, for one of gate and up.
std::int64_t inner_elements(const ModelConfig& config, std::int64_t tokens, int tensor_size,
                            const ExpertWork& work) {
  std::int64_t most = 0;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const std::int64_t elements = config.is_sparse(layer)
                                      ? work.rows * config.moe->intermediate_size / work.parts
                                      : tokens * config.intermediate_size / tensor_size;
    most = std::max(most, elements);
  }
  return most;
}

}  // namespace

Result<Workspace> Workspace::create(const ModelConfig& config, const ModelLimits& limits,
                                    ShardOf shard, const std::optional<ExpertLayout>& exchange,
                                    Ops& ops) {
  const DType activation = ops.activation_dtype();
  const std::int64_t tokens = limits.max_batch_tokens;
  const std::int64_t rows = limits.max_head_rows;
  const std::int64_t hidden = config.hidden_size;
  const HeadLayout layout{config.heads, config.kv_heads, config.head_dim};
  TROUPE_TRY(const QkvRows qkv, qkv_rows(layout, shard));
  const ExpertWork work =
      config.moe ? expert_work(*config.moe, tokens, shard.size, exchange) : ExpertWork();
  const std::int64_t inner = inner_elements(config, tokens, shard.size, work);

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
  if (config.moe) TROUPE_CHECK(allocate_experts(*config.moe, work, hidden, ops, space));
  if (exchange) TROUPE_CHECK(allocate_exchange(*exchange, hidden, ops, space.exchange));
  return space;
}

Tensor first_rows(const Tensor& buffer, std::int64_t rows, std::int64_t width) {
  assert(rows * width <= buffer.elements());
  return {buffer.data(), buffer.dtype(), {rows, width}};
}

}  // namespace troupe
