#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/checkpoint/checkpoint.hpp"
#include "models/config/model_config.hpp"
#include "models/layers/attention/cache_spec.hpp"
#include "models/layers/layer_peak.hpp"
#include "models/layers/model_limits.hpp"
#include "models/layers/parallel/context_split.hpp"
#include "models/layers/parallel/dense_group.hpp"
#include "models/layers/parallel/parallel_context.hpp"
#include "models/ops/ops.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The input of one forward pass. Device tensors, valid until the pass is done.
struct ForwardBatch {
  /// [tokens] i32, 1 <= tokens <= max_batch_tokens; 0 tokens (and no tensor else set) if only other
  /// replicas, for which this one holds weights, have a pass to run. Every stage uses their number,
  /// only the first the ids.
  Tensor token_ids;
  /// One per group of cache_groups, all with the same positions (< max_positions, and < capacity
  /// under a KvPolicy that rotates by entries) and sequences;
  /// each has its own block tables and kv_slots inside the KV cache. In a window group, blocks
  /// entirely before first_position - window + 1 of their sequence are never read: their entry may
  /// be -1.
  std::span<const AttentionBatch> attention;
  Tensor head_rows;  ///< [n] i32: rows that need logits, n <= max_head_rows, may be 0
  /// As `attention`, of the head_rows alone, each a sequence of one row (spans_of_single_rows):
  /// lets the last layer leave out the others. May be empty.
  std::span<const AttentionBatch> head_attention;
  /// Every pass of as many tokens that sets this has its tensors at the same addresses, a sequence
  /// for each token, and logits for each: what it enqueues may be captured and replayed.
  bool graph_captured = false;
  /// The rows of each context rank, which are adjacent, rank after rank, as Model::context_split
  /// says. Empty: every context rank computes all rows. Without effect on one context rank.
  std::span<const std::int64_t> rows_per_context_rank;
  /// The rows of each replica of the step domain in this pass, as far as known. With
  /// data_parallel_attention all are, all set graph_captured or none, and all give head_attention.
  std::span<const ReplicaRows> replicas = {};
  /// Each tensor rank needs the logits of its ceil_slice of head_rows only.
  bool divides_logits = false;
  /// In a pipeline: run without receiving from or sending to another stage. The results are void.
  bool alone = false;
};

/// How many rows (a token with one of its experts) each expert of this rank has computed: those of
/// layers [first_layer, first_layer + layers) and experts [first_expert, first_expert + experts).
struct ExpertLoad {
  std::int64_t first_layer = 0;
  std::int64_t layers = 0;
  std::int64_t first_expert = 0;
  std::int64_t experts = 0;
  std::vector<std::int64_t> rows;  ///< [layers][experts]; 0 in layers without experts
};

/// One rank's part of a model. A pass is a deterministic function of the weights, the KV cache and
/// the batch; on CPU a sequence's logits have the same bits whatever else is in its passes, however
/// its tokens are split into passes, and at every tensor size. One thread at a time.
class Model {
 public:
  virtual ~Model() = default;

  /// Runs a pass: writes the tokens' KV to the cache and, for each of head_rows, the logits of the
  /// next token to `logits` [n, vocab] f32 (the same on all ranks of the tensor group, unless
  /// divides_logits; written on the last stage of a pipeline only). Allocates nothing on the
  /// device. Errors: invalid_argument for shapes above the limits or before allocate_kv_cache;
  /// those of Collectives.
  virtual Result<void> forward(const ForwardBatch& batch, const Tensor& logits) = 0;

  /// How a pass of `rows`, at least 2 for each context rank, is divided over these.
  virtual ContextSplit context_split(std::int64_t rows) const = 0;

  /// Drops all that refers to the ranks' collectives as they are: captured passes, and what a pass
  /// that was aborted has begun. The KV cache's contents are void then. Before collectives in
  /// device memory are replaced; no pass runs.
  virtual void discard_passes() = 0;

  /// True if passes with ForwardBatch::graph_captured are worthwhile here.
  virtual bool supports_graph() const = 0;

  /// Device memory of one KV block on this rank. A block belongs to one group at a time, and the
  /// i-th layer of each group (on this stage) keeps its part in the i-th cache tensor: so the group
  /// with the most layers determines it.
  virtual std::size_t kv_bytes_per_block() const = 0;
  /// Allocates `blocks` KV blocks; call once. Errors: resource_exhausted names the bytes.
  virtual Result<void> allocate_kv_cache(std::int64_t blocks) = 0;
  /// The cache tensors of this rank; empty before allocate_kv_cache.
  virtual std::span<const KvLayer> kv_layers() const = 0;
  /// Under a policy that drops tokens (ModelLimits::kv_policy): removes entries from the caches of
  /// sequences, in all layers of this rank, before the next pass. The arguments as in KvCompaction;
  /// tensors must stay until the device has done it.
  virtual void compact_kv(std::span<const CompactedSequence> sequences, const Tensor& block_tables,
                          const Tensor& device_sequences) = 0;
  /// Allocates host memory for `host_blocks` of these blocks, after allocate_kv_cache. Errors: as
  /// AttentionOps::make_swap.
  virtual Result<std::unique_ptr<KvSwap>> make_swap(std::int64_t host_blocks) = 0;

  /// PlannedAttention::shared_positions of the last pass, in the cache group that has the most.
  virtual std::int64_t shared_positions() const = 0;

  /// The rows that experts have computed so far. `rows` is empty in a dense model, and on all but
  /// one of the ranks that compute parts of the same rows. Waits for the device.
  virtual ExpertLoad expert_load() const = 0;

  virtual std::size_t weight_bytes() const = 0;
  /// How its weights were read; see WeightOps::finish_loading.
  virtual const LoadedWeights& loaded() const = 0;
  virtual const ModelConfig& config() const = 0;
  /// The limits given at loading, with max_positions resolved.
  virtual const ModelLimits& limits() const = 0;
  /// With ModelLimits::max_activation: the layers of this rank that have exceeded it, as far as the
  /// device is known to have computed them; each once. Never waits: peaks come back beside a pass's
  /// logits.
  virtual std::vector<LayerPeak> take_peaks() { return {}; }
  /// From the next pass on, those of these layers that this rank has compute with activations of
  /// full width (WeightOps::widen). Waits for the device, once a layer. All ranks of a replica must
  /// call it between the same passes, so that they agree. Errors: those of widen.
  virtual Result<void> widen_layers(std::span<const std::int32_t> /*layers*/) { return {}; }
  /// Forgets what was seen before, in warm-up passes or another epoch; take_peaks() tells layers
  /// that are widened again. No pass runs.
  virtual void restart_peaks() {}

  /// What its matrices were multiplied as when it was loaded, a line for each kernel, if the device
  /// says so.
  virtual std::vector<std::string> kernels() const { return {}; }
};

/// Called on the loading thread with the progress of the weights.
using OnWeightsLoaded = std::function<void(const LoadedWeights&)>;

/// Loads this rank's part. `ops` and the collectives must outlive the model; config and checkpoint
/// need not. Errors: those of check_model; resource_exhausted; io.
Result<std::unique_ptr<Model>> load_model(const ModelConfig& config, const Checkpoint& checkpoint,
                                          Ops& ops, const ParallelContext& parallel,
                                          const ModelLimits& limits,
                                          const OnWeightsLoaded& on_loaded = nullptr);

/// Checks everything that can be refused before a process starts, from headers alone. Errors:
/// missing tensors, shapes that differ from the config (corrupt_data, with file and tensor), sizes
/// that do not divide (invalid_argument, what by what), arrangements this version does not support
/// (unsupported).
Result<void> check_model(const ModelConfig& config, const Checkpoint& checkpoint, const Mesh& mesh);

}  // namespace troupe
