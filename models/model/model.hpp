#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "models/checkpoint/checkpoint.hpp"
#include "models/config/model_config.hpp"
#include "models/layers/attention/cache_spec.hpp"
#include "models/layers/model_limits.hpp"
#include "models/layers/parallel/parallel_context.hpp"
#include "models/ops/ops.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// What one forward pass computes. Device tensors, valid until the pass is done.
struct ForwardBatch {
  /// [tokens] i32, 1 <= tokens <= max_batch_tokens; 0 tokens (and nothing else set) where other
  /// replicas hold experts of this one and have a pass to run. Their number counts on every stage,
  /// the ids themselves on the first.
  Tensor token_ids;
  /// One per group of cache_groups, all of the same positions (< max_positions) and sequences; each
  /// has its own block tables and kv_slots inside the KV cache. In a window group, blocks that lie
  /// wholly before first_position - window + 1 of their sequence are never read: their entry may be
  /// -1.
  std::span<const AttentionBatch> attention;
  Tensor head_rows;  ///< [n] i32: rows that need logits, n <= max_head_rows, may be 0
  /// Every pass of as many tokens that says so has its tensors at the same places, a sequence for
  /// each token, and logits for each: what it enqueues may be recorded and replayed.
  bool graph_captured = false;
  /// Tokens of all replicas that hold experts of this one in this pass, as far as that is known.
  std::int64_t domain_tokens = 0;
  /// Each tensor rank wants the logits of its ceil_slice of head_rows alone.
  bool divides_logits = false;
  /// In a pipeline: nothing comes from another stage or goes to one. What is computed is void.
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
/// the batch; on CPU a sequence's logits have the same bits whoever shares its passes, however its
/// tokens are cut into passes, and at every tensor size. One thread at a time.
class Model {
 public:
  virtual ~Model() = default;

  /// Runs a pass: writes the tokens' keys and values to the cache and, for each of head_rows, the
  /// logits of the next token to `logits` [n, vocab] f32 (the same on all ranks of the group,
  /// unless divides_logits; on the last stage of a pipeline only, elsewhere it is not looked at).
  /// Allocates nothing on the device. Errors: invalid_argument for shapes above the limits or
  /// before allocate_kv_cache; those of Collectives.
  virtual Result<void> forward(const ForwardBatch& batch, const Tensor& logits) = 0;

  /// Whether passes with ForwardBatch::recorded are worth their while here.
  virtual bool supports_graph() const = 0;

  /// Device memory of one KV block on this rank. A block belongs to one group at a time, and the
  /// i-th layer of each group (on this stage) keeps its part in the i-th cache tensor: so it is
  /// that of the group with the most layers.
  virtual std::size_t kv_bytes_per_block() const = 0;
  /// Makes room for `blocks` KV blocks; once. resource_exhausted names the bytes asked for.
  virtual Result<void> allocate_kv_cache(std::int64_t blocks) = 0;
  /// Host memory for `host_blocks` of these blocks, after allocate_kv_cache. Errors: as
  /// Ops::make_swap.
  virtual Result<std::unique_ptr<KvSwap>> make_swap(std::int64_t host_blocks) = 0;

  /// What the experts have done so far. `rows` is empty in a model without experts, and on all but
  /// one of the ranks that compute parts of the same rows. Waits for the device.
  virtual ExpertLoad expert_load() const = 0;

  virtual std::size_t weight_bytes() const = 0;
  /// How its weights were read, as Ops::finish_loading says.
  virtual const LoadedWeights& loaded() const = 0;
  virtual const ModelConfig& config() const = 0;
  /// As given, with max_positions resolved.
  virtual const ModelLimits& limits() const = 0;
};

/// Told how far the weights are, on the thread that loads.
using OnWeightsLoaded = std::function<void(const LoadedWeights&)>;

/// Loads this rank's part. `ops` and the collectives must outlive the model; config and checkpoint
/// are free to go. Errors: those of check_model; resource_exhausted; io.
Result<std::unique_ptr<Model>> load_model(const ModelConfig& config, const Checkpoint& checkpoint,
                                          Ops& ops, const ParallelContext& parallel,
                                          const ModelLimits& limits,
                                          const OnWeightsLoaded& on_loaded = nullptr);

/// Everything that can be refused before a process starts, from headers alone: missing tensors,
/// shapes that differ from the config (corrupt_data, with file and tensor), sizes that do not
/// divide (invalid_argument, what by what), arrangements this version does not run (unsupported).
Result<void> check_model(const ModelConfig& config, const Checkpoint& checkpoint, const Mesh& mesh);

}  // namespace troupe
