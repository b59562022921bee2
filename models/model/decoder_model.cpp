#include "models/model/decoder_model.hpp"

#include <algorithm>

#include "models/layers/rope_table.hpp"

namespace troupe {

Result<std::unique_ptr<Model>> DecoderModel::load(const ModelConfig& config,
                                                  const Checkpoint& checkpoint, Ops& ops,
                                                  const ParallelContext& parallel,
                                                  const ModelLimits& limits) {
  const ShardOf shard{parallel.at.tensor, parallel.shape.tensor};
  std::unique_ptr<DecoderModel> model(new DecoderModel(config, limits, ops));
  if (model->limits_.max_positions == 0) {
    model->limits_.max_positions = config.max_position_embeddings;
  }
  TROUPE_CHECK(model->build(checkpoint, parallel, shard));
  return std::unique_ptr<Model>(std::move(model));
}

Result<void> DecoderModel::build(const Checkpoint& checkpoint, const ParallelContext& parallel,
                                 ShardOf shard) {
  const Family& family = family_of(config_.architecture);
  const Weights weights(config_, checkpoint, family.weights, shard, limits_.compute, ops_);
  TROUPE_TRY(attention_, attention_shape(config_, shard));
  TROUPE_TRY(space_, Workspace::create(config_, limits_, shard, ops_));
  const std::int64_t rows_per_token = config_.moe ? config_.moe->top_k : 1;
  TROUPE_TRY(
      auto tensor,
      TensorGroup::create(shard.size > 1 ? parallel.tensor : nullptr, parallel.sequence_parallel,
                          limits_.max_batch_tokens * rows_per_token * config_.hidden_size, ops_));
  tensor_.emplace(std::move(tensor));
  const LayerContext context{config_, limits_, weights, space_, ops_, *tensor_};

  TROUPE_CHECK(build_rope());
  TROUPE_TRY(auto embedding, Embedding::create(context));
  embedding_.emplace(std::move(embedding));
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    TROUPE_TRY(auto built, family.build_layer(context, layer));
    layers_.push_back(std::move(built));
  }
  TROUPE_TRY(auto head, Head::create(context));
  head_.emplace(std::move(head));
  return {};
}

Result<void> DecoderModel::build_rope() {
  const HostTensor table = rope_table(config_.rope, limits_.max_positions, config_.head_dim);
  TROUPE_TRY(rope_, ops_.allocate(DType::f32, table->shape()));
  ops_.upload(table, rope_);
  return ops_.synchronize();
}

Result<void> DecoderModel::forward(const ForwardBatch& batch, const Tensor& logits) {
  TROUPE_CHECK(check_batch(batch, logits));
  const std::int64_t tokens = batch.token_ids[0];
  const std::int64_t own = tensor_->own_tokens(tokens).count;
  HiddenState hidden{space_.residual->rows(0, own), space_.update->rows(0, own)};
  TROUPE_CHECK(embedding_->forward(batch.token_ids, hidden.residual));
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    TROUPE_CHECK(layers_[layer].forward(hidden, batch.attention, rope_, kv_[layer]));
  }
  if (batch.head_rows.empty()) return {};
  return head_->forward(hidden, tokens, batch.head_rows, logits);
}

Result<void> DecoderModel::check_batch(const ForwardBatch& batch, const Tensor& logits) const {
  const std::int64_t tokens = batch.token_ids.elements();
  const std::int64_t rows = batch.head_rows.elements();
  if (tokens < 1 || tokens > limits_.max_batch_tokens) {
    return fail(ErrorCode::invalid_argument, "a pass of {} tokens; this model takes 1 to {}",
                tokens, limits_.max_batch_tokens);
  }
  if (rows > limits_.max_head_rows) {
    return fail(ErrorCode::invalid_argument, "logits of {} rows; this model gives at most {}", rows,
                limits_.max_head_rows);
  }
  if (kv_.empty()) {
    return fail(ErrorCode::invalid_argument, "forward before allocate_kv_cache");
  }
  TROUPE_CHECK(check_shape("token_ids", batch.token_ids, {tokens}, DType::i32));
  TROUPE_CHECK(check_shape("positions", batch.attention.positions, {tokens}, DType::i32));
  TROUPE_CHECK(check_shape("kv_slots", batch.attention.kv_slots, {tokens}, DType::i32));
  if (rows == 0) return {};
  TROUPE_CHECK(check_shape("head_rows", batch.head_rows, {rows}, DType::i32));
  return check_shape("logits", logits, {rows, config_.vocab_size}, DType::f32);
}

std::size_t DecoderModel::kv_bytes_per_block() const {
  const std::int64_t elements =
      2 * config_.layers * limits_.block_size * attention_.kv_heads * attention_.head_dim;
  return static_cast<std::size_t>(elements) * size_of(limits_.kv_dtype);
}

Result<void> DecoderModel::allocate_kv_cache(std::int64_t blocks) {
  if (!kv_.empty()) return fail(ErrorCode::invalid_argument, "the KV cache is there already");
  if (blocks < 1) return fail(ErrorCode::invalid_argument, "a KV cache of {} blocks", blocks);
  std::vector<std::pair<DeviceTensor, DeviceTensor>> memory;
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    TROUPE_TRY(auto pages,
               ops_.allocate_kv(blocks, limits_.block_size, attention_, limits_.kv_dtype));
    memory.push_back(std::move(pages));
  }
  kv_memory_ = std::move(memory);
  for (const auto& [keys, values] : kv_memory_) kv_.push_back({keys, values});
  return {};
}

std::size_t DecoderModel::weight_bytes() const {
  std::size_t bytes = embedding_->bytes() + head_->bytes();
  for (const DecoderLayer& layer : layers_) bytes += layer.bytes();
  return bytes;
}

}  // namespace troupe
