#pragma once

#include <compare>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "models/families/family.hpp"
#include "models/layers/attention/stage_caches.hpp"
#include "models/layers/decoder_layer.hpp"
#include "models/layers/embedding.hpp"
#include "models/layers/head.hpp"
#include "models/model/layer_fallback.hpp"
#include "models/model/model.hpp"

namespace troupe {

/// A decoder of any family: embedding, layers, head; in a pipeline, one stage of it. Stages pass on
/// the residual stream, with the last layer's update added to it.
class DecoderModel final : public Model {
 public:
  static Result<std::unique_ptr<Model>> load(const ModelConfig& config,
                                             const Checkpoint& checkpoint, Ops& ops,
                                             const ParallelContext& parallel,
                                             const ModelLimits& limits,
                                             const OnWeightsLoaded& on_loaded);

  Result<void> forward(const ForwardBatch& batch, const Tensor& logits) override;
  ContextSplit context_split(std::int64_t rows) const override { return context_->split(rows); }
  bool supports_graph() const override;
  void discard_passes() override;
  std::size_t kv_bytes_per_block() const override;
  Result<void> allocate_kv_cache(std::int64_t blocks) override;
  std::span<const KvLayer> kv_layers() const override { return kv_; }
  void compact_kv(std::span<const CompactedSequence> sequences, const Tensor& block_tables,
                  const Tensor& device_sequences) override;
  Result<std::unique_ptr<KvSwap>> make_swap(std::int64_t host_blocks) override;
  std::int64_t shared_positions() const override { return shared_positions_; }
  ExpertLoad expert_load() const override;
  std::size_t weight_bytes() const override;
  const LoadedWeights& loaded() const override { return loaded_; }
  std::vector<std::string> kernels() const override { return kernels_; }
  std::vector<LayerPeak> take_peaks() override {
    return fallback_ ? fallback_->take_peaks() : std::vector<LayerPeak>();
  }
  Result<void> widen_layers(std::span<const std::int32_t> layers) override;
  void restart_peaks() override {
    if (fallback_) fallback_->restart();
  }
  const ModelConfig& config() const override { return config_; }
  const ModelLimits& limits() const override { return limits_; }

 private:
  /// What passes that replay one graph have in common.
  struct GraphKey {
    std::int64_t tokens = 0;
    std::int64_t expected_rows = 0;
    std::vector<int> layouts;  ///< PlannedAttention::layout of each batch
    auto operator<=>(const GraphKey&) const = default;
  };

  DecoderModel(const ModelConfig& config, const ModelLimits& limits, Ops& ops)
      : config_(config), limits_(limits), ops_(ops) {}

  Result<void> build(const Checkpoint& checkpoint, const ParallelContext& parallel, ShardOf shard,
                     const OnWeightsLoaded& on_loaded);
  bool sums_in_parts(const ParallelContext& parallel) const;
  Result<void> build_rope(const RopeConfig& rope, DeviceTensor& device);
  /// Sets passes_ and head_rows_.
  void plan_attention(const ForwardBatch& batch);
  /// True if the last layer computes the rows that need logits only.
  bool leaves_out_rows(const ForwardBatch& batch) const;
  /// The same of a replica with these rows, described in such a batch.
  bool leaves_out_rows(const ReplicaRows& rows, const ForwardBatch& batch) const;
  /// Enqueues the whole pass.
  Result<void> run(const ForwardBatch& batch, const Tensor& logits);
  Result<void> replay(const ForwardBatch& batch, const Tensor& logits);
  /// Sets the rows of all replicas that the dense layers take from now on; does nothing without a
  /// DenseGroup.
  template <class RowsOf>
  void set_dense_rows(const ForwardBatch& batch, const RowsOf& rows_of);
  Result<void> begin_hidden(const ForwardBatch& batch, HiddenState& hidden);
  Result<void> end_hidden(const ForwardBatch& batch, HiddenState& hidden, const Tensor& logits);
  /// The rows of all ranks together, rounded to a power of two, if rows are exchanged; else 0.
  std::int64_t expected_rows(const ForwardBatch& batch) const;
  Result<void> allocate_index_keys(std::int64_t blocks);
  bool is_last_stage() const { return stage_ + 1 == stages_; }
  Result<void> check_batch(const ForwardBatch& batch, const Tensor& logits) const;
  Result<void> check_context_rows(const ForwardBatch& batch) const;
  Result<void> check_replicas(const ForwardBatch& batch) const;

  ModelConfig config_;
  ModelLimits limits_;
  Ops& ops_;
  AttentionShape attention_;  // of all layers, except for their windows
  Workspace space_;
  std::optional<TensorGroup> tensor_;
  std::optional<ContextGroup> context_;
  ExpertGroup experts_;
  DeviceTensor rope_;                // [max_positions, rope_width] f32
  DeviceTensor window_rope_;         // the same of layers with a window, if they have their own
  Collectives* pipeline_ = nullptr;  // null on one stage
  int stage_ = 0;
  int stages_ = 1;
  std::optional<DenseGroup> dense_;       // unset unless replicas share dense layers
  std::size_t replica_ = 0;               // of this rank in its step domain
  std::size_t replicas_ = 1;              // of the domain, which hold weights for each other
  std::vector<std::int64_t> dense_rows_;  // of each, for dense_
  std::optional<Embedding> embedding_;    // of the first stage
  std::int64_t first_layer_ = 0;
  LoadedWeights loaded_;
  std::vector<std::string> kernels_;
  std::optional<LayerFallback> fallback_;  // set with limits_.max_activation
  std::vector<DecoderLayer> layers_;       // of this stage
  std::vector<CacheSpec> groups_;          // cache_groups of the model
  std::vector<StageCache> caches_;         // of each of layers_
  std::vector<AttentionMetadata> passes_;  // this pass, for each group
  std::optional<HeadRows> head_rows_;      // all that the last layer computes
  std::optional<Head> head_;               // of the last stage
  std::vector<std::pair<DeviceTensor, DeviceTensor>> kv_memory_;  // keys, values of each layer
  std::vector<DeviceTensor> index_keys_;  // KvLayer::index_keys of each layer, or none
  std::vector<DeviceTensor> kv_weights_;  // KvLayer::weights of each layer, or none
  std::vector<KvLayer> kv_;               // by StageCache::tensor
  std::vector<int> layouts_;              // of this pass's attention
  std::int64_t shared_positions_ = 0;     // in this pass, of a layer
  /// Captured passes; null after the first such pass, which runs uncaptured, so that what a device
  /// tunes or allocates on first use is ready.
  std::map<GraphKey, std::unique_ptr<CapturedGraph>> graphs_;
};

}  // namespace troupe
