#include "models/model/decoder_model.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <functional>
#include <numeric>

#include <fmt/ranges.h>

#include "models/layers/attention/attention_shape.hpp"
#include "models/layers/attention/rope_table.hpp"
#include "models/model/stages.hpp"
#include "runtime/base/log.hpp"

namespace troupe {

Result<std::unique_ptr<Model>> DecoderModel::load(const ModelConfig& config,
                                                  const Checkpoint& checkpoint, Ops& ops,
                                                  const ParallelContext& parallel,
                                                  const ModelLimits& limits,
                                                  const OnWeightsLoaded& on_loaded) {
  const ShardOf shard{parallel.at().tensor, parallel.mesh.shape().tensor};
  std::unique_ptr<DecoderModel> model(new DecoderModel(config, limits, ops));
  if (model->limits_.max_positions == 0) {
    model->limits_.max_positions = config.max_position_embeddings;
  }
  if (auto built = model->build(checkpoint, parallel, shard, on_loaded); !built.ok()) {
    (void)ops.weights().finish_loading(
        nullptr);  // what is read goes, and so does where it is read to
    return std::move(built).error();
  }
  return std::unique_ptr<Model>(std::move(model));
}

Result<void> DecoderModel::build(const Checkpoint& checkpoint, const ParallelContext& parallel,
                                 ShardOf shard, const OnWeightsLoaded& on_loaded) {
  const Weights weights(config_, checkpoint, weight_rules_of(config_), parallel.mesh, parallel.rank,
                        limits_, ops_);
  TROUPE_TRY(attention_,
             attention_shape(config_, 0, head_shard(config_, parallel.mesh, parallel.rank)));
  TROUPE_TRY(experts_, ExpertGroup::create(config_, limits_, parallel, ops_));
  TROUPE_TRY(space_, Workspace::create(config_, limits_, shard, parallel.mesh.dense_size(),
                                       experts_, ops_));
  const bool shares_dense = parallel.mesh.data_parallel_attention();
  const DType partial = limits_.sum_dtype(ops_.activation_dtype());
  // If sums are rounded anyway, a token has one row.
  const bool sums_pairs = config_.moe && !experts_.exchanges() && partial == DType::f32;
  const std::int64_t rows_per_token = sums_pairs ? config_.moe->top_k : 1;
  TROUPE_TRY(auto tensor,
             TensorGroup::create(shard.size > 1 ? parallel.tensor.device : nullptr,
                                 parallel.sequence_parallel,
                                 limits_.max_batch_tokens * rows_per_token * config_.hidden_size,
                                 config_.hidden_size, experts_.exchanges() || shares_dense, partial,
                                 ops_, config_.norm.kind == NormConfig::Kind::rms));
  if (shard.size > 1 && sums_in_parts(parallel)) {
    TROUPE_TRY(auto side,
               parallel.tensor.device->open_overlapped_all_reduce(
                   ops_.activation_dtype(), limits_.max_batch_tokens, config_.hidden_size));
    tensor.overlap_all_reduce(std::move(side));
  }
  tensor_.emplace(std::move(tensor));
  if (shares_dense) {
    TROUPE_TRY(auto dense, DenseGroup::create(*parallel.dense.device, *tensor_, limits_,
                                              config_.hidden_size, ops_));
    dense_.emplace(std::move(dense));
  }
  AttentionShape shape = attention_;
  shape.residual = limits_.kv_residuals.of(0);  // of all layers, if there are context ranks
  TROUPE_TRY(
      auto context,
      ContextGroup::create(parallel.context.device, shape,
                           context_shares_heads(config_, parallel.mesh.shape()), limits_, ops_));
  context_.emplace(std::move(context));
  pipeline_ = parallel.pipeline.device;
  stage_ = parallel.at().stage;
  stages_ = parallel.mesh.shape().pipeline;
  replicas_ = static_cast<std::size_t>(parallel.mesh.replicas_per_domain());
  replica_ = static_cast<std::size_t>(parallel.at().data) % replicas_;
  const LayerContext layers{config_,  limits_,  weights,  space_,    ops_,
                            parallel, *tensor_, experts_, *context_, dense_ ? &*dense_ : nullptr};

  TROUPE_CHECK(build_rope(config_.rope, rope_));
  if (config_.window_rope) TROUPE_CHECK(build_rope(*config_.window_rope, window_rope_));
  if (stage_ == 0) {
    TROUPE_TRY(auto embedding, Embedding::create(layers));
    embedding_.emplace(std::move(embedding));
  }
  TROUPE_TRY(const std::vector<Slice> stages,
             stage_layers(config_, stages_, ops_.memory().available().has_value()));
  const Slice own = stages[static_cast<std::size_t>(stage_)];
  first_layer_ = own.begin;
  for (std::int64_t layer = own.begin; layer < own.end(); ++layer) {
    TROUPE_TRY(auto built, DecoderLayer::create(layers, layer));
    layers_.push_back(std::move(built));
  }
  groups_ = cache_groups(config_);
  caches_ = stage_caches(config_, own);
  if (is_last_stage()) {
    TROUPE_TRY(auto head, Head::create(layers, embedding_ ? &*embedding_ : nullptr));
    head_.emplace(std::move(head));
  }
  TROUPE_TRY(loaded_, ops_.weights().finish_loading(on_loaded));
  kernels_ = weights.kernels();
  if (std::isinf(limits_.max_activation)) return {};
  TROUPE_TRY(auto fallback,
             LayerFallback::create(ops_, weights.rounding(), own, limits_.max_activation));
  fallback_.emplace(std::move(fallback));
  return {};
}

bool DecoderModel::sums_in_parts(const ParallelContext& parallel) const {
  // Models in which every sum is followed directly by a norm. Experts would be read once per part.
  return config_.form == LayerForm() && config_.norm.kind == NormConfig::Kind::rms &&
         config_.embedding_scale == 1.0F && config_.query_key_norm != QueryKeyNorm::projection &&
         !config_.moe && !config_.latent && !config_.output_bias && !config_.mlp_bias &&
         !parallel.mesh.data_parallel_attention() && !limits_.exact_sums &&
         parallel.mesh.shape().pipeline == 1;
}

Result<void> DecoderModel::build_rope(const RopeConfig& rope, DeviceTensor& device) {
  const KvPolicy& policy = limits_.kv_policy;
  const std::int64_t positions = policy.rotates_by_entry()
                                     ? policy.most_entries(limits_.max_positions, 0)
                                     : limits_.max_positions;
  const HostTensor table =
      rope_table(rope, positions, config_.rope_width(), config_.rotated_dim(), limits_.threads);
  TROUPE_TRY(device, ops_.memory().allocate(DType::f32, table->shape()));
  ops_.memory().upload(table, device);
  return ops_.stream().synchronize();
}

Result<void> DecoderModel::forward(const ForwardBatch& batch, const Tensor& logits) {
  TROUPE_CHECK(check_batch(batch, logits));
  context_->begin_pass(batch.token_ids.elements(), batch.rows_per_context_rank);
  plan_attention(batch);
  const bool is_captured = batch.graph_captured && supports_graph();
  TROUPE_CHECK(is_captured ? replay(batch, logits) : run(batch, logits));
  if (fallback_) fallback_->end_pass();
  return {};
}

Result<void> DecoderModel::widen_layers(std::span<const std::int32_t> layers) {
  if (!fallback_) return {};
  TROUPE_TRY(const bool any, fallback_->widen(layers));
  if (!any) return {};
  // Captured passes multiply codes as they were arranged before.
  TROUPE_CHECK(ops_.stream().synchronize());
  graphs_.clear();
  return {};
}

void DecoderModel::plan_attention(const ForwardBatch& batch) {
  // A rank's rows of a divided pass see rows of other ranks, which are not computed in this order.
  // Rows that are observed add to the weights of a pass's tokens, of which parts have some.
  tensor_->allow_parts(!batch.graph_captured && !context_->divides() && !context_->shares_heads() &&
                       !limits_.kv_policy.observes_attention());
  const Slice own = context_->attention_rows();
  const std::vector<Slice> parts = tensor_->parts(own.count);
  passes_.clear();
  for (const AttentionBatch& attention : batch.attention) {
    passes_.emplace_back(attention, own, parts);
  }
  while (passes_.size() < groups_.size()) {
    passes_.emplace_back(AttentionBatch(), own, parts);  // no tokens
  }
  AttentionShape shape = attention_;
  layouts_.clear();
  shared_positions_ = 0;
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    shape.window = groups_[group].window;
    for (const AttentionBatch& batch_of_group : passes_[group].batches()) {
      const PlannedAttention planned = ops_.attention().plan(shape, batch_of_group);
      layouts_.push_back(planned.layout);
      shared_positions_ = std::max(shared_positions_, planned.shared_positions);
    }
  }
  head_rows_.reset();
  if (!leaves_out_rows(batch)) return;
  head_rows_.emplace(HeadRows{batch.head_rows, {}});
  if (head_rows_->count() == 0) return;
  const std::size_t group = caches_.back().group;
  head_rows_->attention = batch.head_attention[group];
  head_rows_->attention.part = OverlappedAllReduce::parts;  // no other batch's
  shape.window = groups_[group].window;
  ops_.attention().plan(shape, head_rows_->attention);
}

bool DecoderModel::leaves_out_rows(const ForwardBatch& batch) const {
  const std::int64_t rows = batch.head_rows.elements();
  const bool is_described = rows == 0 || batch.head_attention.size() == batch.attention.size();
  return is_described && leaves_out_rows({batch.token_ids.elements(), rows}, batch);
}

bool DecoderModel::leaves_out_rows(const ReplicaRows& replica, const ForwardBatch& batch) const {
  const std::int64_t tokens = replica.tokens, rows = replica.head_rows;
  // For more rows the copies would cost as much as they save, and buffers would be too small.
  constexpr std::int64_t min_share = 4;
  const bool is_worthwhile = tokens > 0 && min_share * rows <= tokens;
  if (!is_last_stage() || !is_worthwhile || batch.graph_captured) return false;
  // Where ranks exchange experts' rows, all count the tokens of a pass alike; where they divide the
  // tokens, those that need logits are on few of them, unless there are none.
  if (experts_.exchanges()) return false;
  // Index queries are not gathered.
  if (attention_.index.top_k > 0 && rows > 0) return false;
  return rows == 0 || (context_->size() == 1 && !tensor_->divides(tokens));
}

void DecoderModel::discard_passes() {
  graphs_.clear();
  tensor_->discard_parts();
}

bool DecoderModel::supports_graph() const {
  // The host exchange of assignments waits for the device to say who gets how many.
  return experts_.host_exchange() == nullptr &&
         ops_.attention().supports_graph(attention_, limits_.kv_dtype);
}

Result<void> DecoderModel::replay(const ForwardBatch& batch, const Tensor& logits) {
  const auto [found, is_first] =
      graphs_.try_emplace({batch.token_ids.elements(), expected_rows(batch), layouts_});
  if (is_first) return run(batch, logits);
  if (found->second == nullptr) {
    const auto began = std::chrono::steady_clock::now();
    TROUPE_TRY(found->second, ops_.stream().capture([&] { return run(batch, logits); }));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
    log::debug("graph_captured a pass of {} rows in {:.1f} ms", found->first.tokens, took.count());
  }
  ops_.stream().replay(*found->second);
  return {};
}

std::int64_t DecoderModel::expected_rows(const ForwardBatch& batch) const {
  if (experts_.device_exchange() == nullptr) return 0;
  std::int64_t of_domain = 0;
  for (const ReplicaRows& rows : batch.replicas) of_domain += rows.tokens;
  const std::int64_t tokens = std::max(batch.token_ids.elements(), of_domain);
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(tokens)));
}

template <class RowsOf>
void DecoderModel::set_dense_rows(const ForwardBatch& batch, const RowsOf& rows_of) {
  if (!dense_) return;
  dense_rows_.clear();
  for (const ReplicaRows& rows : batch.replicas) dense_rows_.push_back(std::invoke(rows_of, rows));
  dense_->set_rows(dense_rows_);
}

Result<void> DecoderModel::run(const ForwardBatch& batch, const Tensor& logits) {
  const std::int64_t tokens = context_->own_rows().count;
  if (experts_.device_exchange() != nullptr)
    experts_.device_exchange()->expect(expected_rows(batch));
  const std::int64_t own = tensor_->own_row_count(tokens);
  HiddenState hidden{space_.residual->rows(0, own), space_.update->rows(0, own)};
  const bool takes_part = tokens > 0 || dense_;
  set_dense_rows(batch, &ReplicaRows::tokens);
  if (takes_part) TROUPE_CHECK(begin_hidden(batch, hidden));
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    if (layer + 1 == layers_.size()) {
      set_dense_rows(batch, [&](const ReplicaRows& rows) {
        return leaves_out_rows(rows, batch) ? rows.head_rows : rows.tokens;
      });
    }
    if (fallback_) fallback_->begin_layer(first_layer_ + static_cast<std::int64_t>(layer));
    const StageCache& cache = caches_[layer];
    const RopeConfig& rope = config_.rope_of(first_layer_ + static_cast<std::int64_t>(layer));
    TROUPE_CHECK(layers_[layer].forward(
        hidden, passes_[cache.group], &rope == &config_.rope ? rope_ : window_rope_,
        kv_[cache.tensor], head_rows_ && layer + 1 == layers_.size() ? &*head_rows_ : nullptr));
  }
  if (fallback_) fallback_->end_layers();
  return takes_part ? end_hidden(batch, hidden, logits) : Result<void>();
}

Result<void> DecoderModel::begin_hidden(const ForwardBatch& batch, HiddenState& hidden) {
  if (stage_ == 0) {
    const Slice own = context_->own_rows();
    const Tensor ids = own.count > 0 ? batch.token_ids.rows(own.begin, own.count)
                                     : Tensor(space_.normed->data(), DType::i32, {0});
    TROUPE_TRY(hidden.sum, embedding_->forward(ids, hidden.residual));
    return {};
  }
  if (hidden.tokens() == 0 || batch.alone) return {};
  return pipeline_->receive(hidden.residual, stage_ - 1);
}

Result<void> DecoderModel::end_hidden(const ForwardBatch& batch, HiddenState& hidden,
                                      const Tensor& logits) {
  if (is_last_stage()) {
    set_dense_rows(batch, &ReplicaRows::head_rows);
    if (batch.head_rows.empty()) return dense_ ? head_->serve_others() : Result<void>();
    if (head_rows_) {
      return head_->forward(hidden, head_rows_->count(), {}, logits, batch.divides_logits);
    }
    return head_->forward(hidden, context_->own_rows().count, batch.head_rows, logits,
                          batch.divides_logits);
  }
  TROUPE_CHECK(tensor_->complete(std::move(hidden.sum), hidden.update));
  if (hidden.tokens() == 0) return {};
  ops_.dense().add(hidden.residual, hidden.update);
  if (batch.alone) return {};
  return pipeline_->send(hidden.residual, stage_ + 1);
}

Result<void> DecoderModel::check_batch(const ForwardBatch& batch, const Tensor& logits) const {
  const std::int64_t tokens = batch.token_ids.elements();
  const std::int64_t rows = batch.head_rows.elements();
  const std::int64_t least = replicas_ > 1 ? 0 : 1;
  if (tokens < least || tokens > limits_.max_batch_tokens) {
    return fail(ErrorCode::invalid_argument, "a pass of {} tokens; this model takes {} to {}",
                tokens, least, limits_.max_batch_tokens);
  }
  if (rows > limits_.max_head_rows) {
    return fail(ErrorCode::invalid_argument, "logits of {} rows; this model gives at most {}", rows,
                limits_.max_head_rows);
  }
  if (kv_.empty()) {
    return fail(ErrorCode::invalid_argument, "forward before allocate_kv_cache");
  }
  if (dense_) TROUPE_CHECK(check_replicas(batch));
  if (tokens == 0) return {};
  TROUPE_CHECK(check_context_rows(batch));
  TROUPE_CHECK(check_shape("token_ids", batch.token_ids, {tokens}, DType::i32));
  if (batch.attention.size() != groups_.size()) {
    return fail(ErrorCode::invalid_argument, "block tables of {} groups; this model has {}",
                batch.attention.size(), groups_.size());
  }
  for (const AttentionBatch& attention : batch.attention) {
    TROUPE_CHECK(check_shape("positions", attention.positions, {tokens}, DType::i32));
    TROUPE_CHECK(check_shape("kv_slots", attention.kv_slots, {tokens}, DType::i32));
  }
  for (const AttentionBatch& attention : batch.head_attention) {
    TROUPE_CHECK(check_shape("positions of head_rows", attention.positions, {rows}, DType::i32));
  }
  if (rows == 0 || !is_last_stage()) return {};
  TROUPE_CHECK(check_shape("head_rows", batch.head_rows, {rows}, DType::i32));
  const std::int64_t own = batch.divides_logits ? tensor_->token_slice(rows).count : rows;
  return check_shape("logits", logits, {own, config_.vocab_size}, DType::f32);
}

Result<void> DecoderModel::check_context_rows(const ForwardBatch& batch) const {
  const std::span<const std::int64_t> rows = batch.rows_per_context_rank;
  if (rows.empty() || context_->size() == 1) return {};
  const std::int64_t tokens = batch.token_ids.elements();
  const bool fits = std::ssize(rows) == context_->size() && std::ranges::min(rows) > 0 &&
                    std::reduce(rows.begin(), rows.end(), std::int64_t{0}) == tokens;
  if (fits && !batch.graph_captured) return {};
  return fail(ErrorCode::invalid_argument, "rows {} of {} context ranks for a pass of {} tokens{}",
              fmt::join(rows, ", "), context_->size(), tokens,
              batch.graph_captured ? " that is captured" : "");
}

Result<void> DecoderModel::check_replicas(const ForwardBatch& batch) const {
  const ReplicaRows own{batch.token_ids.elements(), batch.head_rows.elements()};
  if (batch.replicas.size() != replicas_ || batch.replicas[replica_] != own) {
    return fail(
        ErrorCode::invalid_argument,
        "a pass of {} tokens and {} logits on replica {} of {}: the rows of {} replicas are "
        "given, or others for this one",
        own.tokens, own.head_rows, replica_, replicas_, batch.replicas.size());
  }
  if (!leaves_out_rows(own, batch) || leaves_out_rows(batch)) return {};
  return fail(ErrorCode::invalid_argument, "a pass without the attention of its {} head rows",
              own.head_rows);
}

std::size_t DecoderModel::kv_bytes_per_block() const {
  return static_cast<std::size_t>(limits_.block_size) *
         kv_bytes_per_token(attention_,
                            cache_residuals(caches_, first_layer_, limits_.kv_residuals),
                            limits_.kv_dtype, limits_.index_dtype(), limits_.kv_policy);
}

Result<void> DecoderModel::allocate_kv_cache(std::int64_t blocks) {
  if (!kv_.empty()) return fail(ErrorCode::invalid_argument, "the KV cache is there already");
  if (blocks < 1) return fail(ErrorCode::invalid_argument, "a KV cache of {} blocks", blocks);
  std::vector<std::pair<DeviceTensor, DeviceTensor>> memory;
  AttentionShape shape = attention_;
  for (const KvResidual residual : cache_residuals(caches_, first_layer_, limits_.kv_residuals)) {
    shape.residual = residual;
    TROUPE_TRY(auto pages,
               ops_.attention().allocate_kv(blocks, limits_.block_size, shape, limits_.kv_dtype));
    memory.push_back(std::move(pages));
  }
  kv_memory_ = std::move(memory);
  for (const auto& [keys, values] : kv_memory_) kv_.push_back({keys, values});
  if (attention_.index.top_k > 0) TROUPE_CHECK(allocate_index_keys(blocks));
  if (!limits_.kv_policy.observes_attention()) return {};
  for (KvLayer& layer : kv_) {
    TROUPE_TRY(
        DeviceTensor weights,
        ops_.memory().allocate(DType::f32, {blocks, attention_.kv_heads, limits_.block_size}));
    layer.weights = weights;
    kv_weights_.push_back(std::move(weights));
  }
  return {};
}

Result<void> DecoderModel::allocate_index_keys(std::int64_t blocks) {
  for (KvLayer& layer : kv_) {
    TROUPE_TRY(auto pages, ops_.attention().allocate_kv(blocks, limits_.block_size,
                                                        index_cache_shape(attention_.index),
                                                        limits_.index_dtype()));
    layer.index_keys = pages.first;
    index_keys_.push_back(std::move(pages.first));
  }
  return {};
}

void DecoderModel::compact_kv(std::span<const CompactedSequence> sequences,
                              const Tensor& block_tables, const Tensor& device_sequences) {
  const KvPolicy& policy = limits_.kv_policy;
  const KvCompaction compaction{.sequences = sequences,
                                .device_sequences = device_sequences,
                                .block_tables = block_tables,
                                .block_size = limits_.block_size,
                                .first_kept = policy.first_tokens,
                                .last_kept = policy.last_tokens,
                                .by_weight = policy.observes_attention(),
                                .pooling = policy.pooling_tokens,
                                .turns_keys = policy.rotates_by_entry()};
  for (const KvLayer& layer : kv_) ops_.attention().compact(compaction, attention_, rope_, layer);
}

Result<std::unique_ptr<KvSwap>> DecoderModel::make_swap(std::int64_t host_blocks) {
  if (kv_.empty()) return fail(ErrorCode::invalid_argument, "make_swap before allocate_kv_cache");
  return ops_.attention().make_swap(kv_, host_blocks);
}

ExpertLoad DecoderModel::expert_load() const {
  ExpertLoad load;
  const ExpertShare& share = experts_.share();
  if (!config_.moe || share.part.rank != 0)
    return load;  // another rank has parts of the same rows
                  // and reports them
  load.first_layer = first_layer_;
  load.layers = static_cast<std::int64_t>(layers_.size());
  load.first_expert = share.experts.begin;
  load.experts = share.experts.count;
  load.rows.resize(static_cast<std::size_t>(load.layers * load.experts));
  for (std::int64_t layer = 0; layer < load.layers; ++layer) {
    const Tensor rows = layers_[static_cast<std::size_t>(layer)].rows_per_expert();
    if (rows.empty()) continue;
    ops_.memory().download(
        rows, Tensor(load.rows.data() + layer * load.experts, DType::i64, rows.shape()));
  }
  if (!ops_.stream().synchronize().ok()) load.rows.clear();
  return load;
}

std::size_t DecoderModel::weight_bytes() const {
  std::size_t bytes = 0;
  if (embedding_) bytes += embedding_->bytes();
  if (head_) bytes += head_->bytes();
  for (const DecoderLayer& layer : layers_) bytes += layer.bytes();
  return bytes;
}

}  // namespace troupe
