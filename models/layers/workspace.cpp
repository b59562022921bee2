#include "models/layers/workspace.hpp"

#include <algorithm>
#include <cassert>

#include "models/layers/attention/attention_shape.hpp"

namespace troupe {

namespace {

/// A rank's expert work in one pass.
struct ExpertWork {
  std::int64_t tokens = 0;    ///< routed by this rank
  std::int64_t experts = 0;   ///< held by it, whole or in part
  std::int64_t rows = 0;      ///< received for them
  int parts = 1;              ///< parts of each expert
  std::int64_t results = 0;   ///< rows of expert output kept at a time
  DType result = DType::f32;  ///< of these
};

/// `result` is the dtype of expert output, unless something else determines it.
ExpertWork expert_work(const MoeConfig& moe, std::int64_t tokens, const ExpertGroup& group,
                       DType result) {
  const ExpertShare& share = group.share();
  if (const DeviceExpertExchange* exchange = group.device_exchange()) {
    const std::int64_t assignments = exchange->capacity() * moe.top_k;
    return {exchange->layout().max_rows, share.experts.count, assignments, 1, assignments, result};
  }
  if (const ExpertExchange* exchange = group.host_exchange()) {
    const ExpertLayout& layout = exchange->layout();
    return {layout.max_tokens, layout.local_experts(),        layout.max_received_rows(),
            layout.parts,      layout.max_tokens * moe.top_k, DType::f32};
  }
  const std::int64_t rows = tokens * moe.top_k;
  return {tokens, share.experts.count, rows, share.part.size, rows, result};
}

Result<void> allocate_experts(const MoeConfig& moe, const ExpertWork& work, std::int64_t hidden,
                              Ops& ops, Workspace& space) {
  TROUPE_TRY(space.router_logits, ops.memory().allocate(DType::f32, {work.tokens, moe.experts}));
  TROUPE_TRY(space.expert_ids, ops.memory().allocate(DType::i32, {work.tokens, moe.top_k}));
  TROUPE_TRY(space.expert_weights, ops.memory().allocate(DType::f32, {work.tokens, moe.top_k}));
  TROUPE_TRY(space.expert_offsets, ops.memory().allocate(DType::i32, {work.experts + 1}));
  TROUPE_TRY(space.expert_source, ops.memory().allocate(DType::i32, {work.rows}));
  TROUPE_TRY(space.expert_rows, ops.memory().allocate(work.result, {work.results, hidden}));
  return {};
}

Result<void> allocate_exchange(const ExpertLayout& layout, std::int64_t hidden, Ops& ops,
                               ExchangeBuffers& buffers) {
  const DType activation = ops.activation_dtype();
  const std::int64_t sent = layout.max_sent_rows();
  const std::int64_t received = layout.max_received_rows();
  const std::int64_t assignments = layout.max_tokens * layout.top_k;
  buffers.ids = HostTensor(DType::i32, {layout.max_tokens, layout.top_k});
  TROUPE_TRY(buffers.sent_tokens, ops.memory().allocate(DType::i32, {sent}));
  TROUPE_TRY(buffers.sent, ops.memory().allocate(activation, {sent, hidden}));
  TROUPE_TRY(buffers.received, ops.memory().allocate(activation, {received, hidden}));
  TROUPE_TRY(buffers.results, ops.memory().allocate(DType::f32, {received, hidden}));
  TROUPE_TRY(buffers.returned, ops.memory().allocate(DType::f32, {sent, hidden}));
  if (layout.parts > 1) {
    TROUPE_TRY(buffers.summed, ops.memory().allocate(DType::f32, {assignments, hidden}));
  }
  TROUPE_TRY(buffers.rows_of_assignments, ops.memory().allocate(DType::i32, {assignments}));
  return {};
}

Result<void> allocate_latent(const LatentConfig& latent, std::int64_t heads, std::int64_t tokens,
                             Ops& ops, LatentBuffers& buffers) {
  const auto allocate = [&](std::int64_t width) {
    return ops.memory().allocate(ops.activation_dtype(), {tokens, width});
  };
  const std::int64_t query = heads * (latent.unrotated_dim + latent.rotated_dim);
  const std::int64_t kv = latent.rank + latent.rotated_dim;
  if (latent.query_rank > 0) {
    TROUPE_TRY(buffers.projected, allocate(query));
    TROUPE_TRY(buffers.query_down, allocate(latent.query_rank));
    TROUPE_TRY(buffers.kv, allocate(kv));
  } else {
    TROUPE_TRY(buffers.projected, allocate(query + kv));
  }
  TROUPE_TRY(buffers.values, allocate(heads * latent.value_dim));
  if (latent.index_top_k > 0) {
    TROUPE_TRY(buffers.index_query, allocate(latent.index_heads * latent.index_dim));
    TROUPE_TRY(buffers.index_key, allocate(latent.index_dim));
    TROUPE_TRY(buffers.index_weights, allocate(latent.index_heads));
  }
  return {};
}

Result<void> allocate_attention(const ModelConfig& config, std::int64_t tokens, ShardOf shard,
                                Ops& ops, Workspace& space) {
  const DType activation = ops.activation_dtype();
  TROUPE_TRY(const AttentionShape shape, attention_shape(config, 0, shard));
  TROUPE_TRY(space.query,
             ops.memory().allocate(activation, {tokens, shape.heads * shape.head_dim}));
  TROUPE_TRY(space.attended,
             ops.memory().allocate(activation, {tokens, shape.heads * shape.value_dim()}));
  if (config.latent) {
    return allocate_latent(*config.latent, shape.heads, tokens, ops, space.latent);
  }
  if (config.query_key_norm == QueryKeyNorm::projection) {
    const std::int64_t normed = shape.heads + shape.kv_heads;
    TROUPE_TRY(space.square_sums, ops.memory().allocate(DType::f32, {tokens, normed}));
    if (shard.size > 1) {
      TROUPE_TRY(space.all_square_sums,
                 ops.memory().allocate(DType::f32, {shard.size * tokens, normed}));
    }
  }
  const std::int64_t heads = shape.heads + 2 * shape.kv_heads;
  TROUPE_TRY(space.qkv,
             ops.memory().allocate_outputs(activation, {tokens, heads * shape.head_dim}));
  return {};
}

/// The most elements that a pass's gated MLPs need for one of gate and up.
std::int64_t inner_elements(const ModelConfig& config, std::int64_t tokens, int dense_ranks,
                            const ExpertWork& work) {
  std::int64_t most = 0;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const bool sparse = config.is_sparse(layer);
    const std::int64_t all_take =
        sparse ? config.moe->shared_intermediate_size : config.intermediate_size;
    const std::int64_t routed = sparse ? work.rows * config.moe->intermediate_size / work.parts : 0;
    most = std::max({most, tokens * all_take / dense_ranks, routed});
  }
  return most;
}

}  // namespace

Result<Workspace> Workspace::create(const ModelConfig& config, const ModelLimits& limits,
                                    ShardOf shard, int dense_ranks, const ExpertGroup& experts,
                                    Ops& ops) {
  const DType activation = ops.activation_dtype();
  const std::int64_t tokens = limits.max_batch_tokens;
  const std::int64_t rows = limits.max_head_rows;
  const std::int64_t hidden = config.hidden_size;
  const DType summed = limits.sum_dtype(activation);
  const ExpertWork work =
      config.moe ? expert_work(*config.moe, tokens, experts, summed) : ExpertWork();
  const std::int64_t inner = inner_elements(config, tokens, dense_ranks, work);

  Workspace space;
  TROUPE_TRY(space.residual, ops.memory().allocate(activation, {tokens, hidden}));
  TROUPE_TRY(space.update, ops.memory().allocate_outputs(summed, {tokens, hidden}));
  TROUPE_TRY(space.normed, ops.memory().allocate(activation, {tokens, hidden}));
  TROUPE_CHECK(allocate_attention(config, tokens, shard, ops, space));
  TROUPE_TRY(space.gate_up, ops.memory().allocate_outputs(activation, {2 * inner}));
  TROUPE_TRY(space.activated, ops.memory().allocate(activation, {inner}));
  TROUPE_TRY(space.head_residual, ops.memory().allocate(activation, {rows, hidden}));
  TROUPE_TRY(space.head_update, ops.memory().allocate(summed, {rows, hidden}));
  TROUPE_TRY(space.head_normed, ops.memory().allocate(activation, {rows, hidden}));
  if (dense_ranks > 1) {
    const std::int64_t vocab = ceil_slice(config.vocab_size, {0, dense_ranks}).count;
    const std::int64_t own =
        dense_ranks > shard.size ? ceil_slice(rows, {0, shard.size}).count : rows;
    TROUPE_TRY(space.local_logits, ops.memory().allocate_outputs(DType::f32, {rows, vocab}));
    TROUPE_TRY(space.all_logits, ops.memory().allocate(DType::f32, {dense_ranks * own, vocab}));
  }
  if (config.moe) TROUPE_CHECK(allocate_experts(*config.moe, work, hidden, ops, space));
  if (config.moe && config.moe->shared_intermediate_size > 0) {
    TROUPE_TRY(space.shared_rows, ops.memory().allocate(summed, {tokens, hidden}));
    const std::int64_t shared_inner = config.moe->shared_intermediate_size / dense_ranks;
    TROUPE_TRY(space.shared_activated,
               ops.memory().allocate(activation, {max_tokens_with_shared_mlp * shared_inner}));
  }
  if (const ExpertExchange* exchange = experts.host_exchange()) {
    TROUPE_CHECK(allocate_exchange(exchange->layout(), hidden, ops, space.exchange));
  }
  return space;
}

Tensor first_rows(const Tensor& buffer, std::int64_t rows, std::int64_t width) {
  assert(rows * width <= buffer.elements());
  return {buffer.data(), buffer.dtype(), {rows, width}};
}

}  // namespace troupe
