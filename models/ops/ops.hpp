#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "models/ops/kv_swap.hpp"
#include "parallel/device/tensor.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

struct StoredMatrix;

/// A weight matrix [n, k] in the layout its device multiplies fastest. Opaque: made by
/// `Ops::prepare`, used by `Ops::linear` of the same Ops.
class Linear {
 public:
  virtual ~Linear() = default;
  virtual std::int64_t out_features() const = 0;  ///< n
  virtual std::int64_t in_features() const = 0;   ///< k
  virtual std::size_t bytes() const = 0;          ///< device memory held
};

/// Like Linear, with one matrix [n, k] per local expert.
class GroupedLinear {
 public:
  virtual ~GroupedLinear() = default;
  virtual std::int64_t experts() const = 0;
  virtual std::int64_t out_features() const = 0;
  virtual std::int64_t in_features() const = 0;
  virtual std::size_t bytes() const = 0;
};

/// One sequence's part of a forward pass: `rows` consecutive tokens, whose queries see the cache up
/// to and including themselves.
struct SequenceSpan {
  std::int32_t first_row = 0;       ///< row of its first token in the batch
  std::int32_t rows = 0;            ///< its tokens in this pass, >= 1
  std::int32_t first_position = 0;  ///< position of its first token in this pass
  std::int32_t block_offset = 0;    ///< begin of its block table in `block_tables`
};
constexpr std::int64_t numbers_of_span = 4;
static_assert(sizeof(SequenceSpan) == numbers_of_span * sizeof(std::int32_t));

/// The inputs of attention for a pass, or for a part of its rows. Tensors are on the device; the
/// host knows the spans' numbers. Valid during one forward call.
struct AttentionBatch {
  Tensor positions;     ///< [tokens] i32
  Tensor kv_slots;      ///< [tokens] i32: block * block_size + offset in it
  Tensor block_tables;  ///< [sum of blocks] i32, sequence after sequence of the whole pass
  /// In row order, covering all rows, counted from the batch's first.
  std::span<const SequenceSpan> sequences;
  std::int32_t block_size = 16;
  /// [sequences, 4] i32: the whole pass's spans on the device; the CPU needs none.
  Tensor spans;
  /// The enqueued operations are captured (Ops::capture) and replayed for other batches: tensors at
  /// the same addresses, as many sequences, each of one row.
  bool graph_captured = false;
  std::int64_t first_row = 0;  ///< of the batch in the pass
  int part = 0;                ///< of the pass: distinguishes batches that are planned at the same
                               ///< time
};

/// One layer's KV pages on one rank: `blocks` pages of `block_size` tokens for its local KV heads,
/// in a layout known only to Ops.
struct KvLayer {
  Tensor keys;
  Tensor values;  ///< empty if values are part of the keys (AttentionShape::latent)
};

struct AttentionShape {
  std::int64_t heads = 0;     ///< local query heads
  std::int64_t kv_heads = 0;  ///< local KV heads; divides heads
  std::int64_t head_dim = 0;
  float scale = 1.0F;       ///< of q.k before softmax
  std::int64_t window = 0;  ///< a query sees its own position and window - 1 before; 0: all before
  /// Above 0, the one KV head's value is the first `latent` elements of its key, which is all that
  /// the cache holds (multi-head latent attention in its absorbed form).
  std::int64_t latent = 0;
  /// Scores s become soft_cap * tanh(s / soft_cap); 0: no cap.
  float soft_cap = 0.0F;
  /// [heads] f32 on the device, or empty. A head's sink is one more score in its softmax, without a
  /// value.
  Tensor sinks = {};

  std::int64_t value_dim() const { return latent > 0 ? latent : head_dim; }
  /// Elements that a layer's cache holds of a token.
  std::int64_t cached_elements() const { return latent > 0 ? head_dim : 2 * kv_heads * head_dim; }
};

struct RouterOptions {
  std::int64_t top_k = 1;
  bool normalize = false;  ///< the chosen experts' weights are divided by their sum
  bool sigmoid = false;    ///< scores are sigmoids of the logits instead of their softmax
  /// Among `groups` equal groups of experts, only the `top_groups` whose two best scores have the
  /// largest sum take part.
  std::int64_t groups = 1;
  std::int64_t top_groups = 1;
  float scale = 1.0F;  ///< factor of the weights
};

/// The rows of a pass in the order of their experts, for grouped GEMMs. Made by `Ops::permute`.
/// Entry i of `source` is `token * top_k + choice` of sorted row i; rows of one expert keep token
/// order.
struct ExpertBatch {
  Tensor offsets;  ///< [local experts + 1] i32: expert e has sorted rows [offsets[e], offsets[e+1])
  Tensor source;   ///< [tokens * top_k] i32; the first offsets[last] entries are valid
  /// Number of valid entries, as near as the host knows; 0: all. Selects the fastest kernels.
  std::int64_t expected_rows = 0;
};

/// A router's choices for the tokens of a pass, on a rank that has some of the experts.
struct ExpertChoices {
  Tensor ids;                     ///< [tokens, top_k] i32, a token's all different
  Tensor weights;                 ///< [tokens, top_k] f32
  std::int64_t first_expert = 0;  ///< the first local expert; a batch or count gives their number
};

/// Scratch memory between a pass's tokens and their experts' outputs.
struct ExpertScratch {
  Tensor gate_up;    ///< [tokens * top_k, 2 inner]
  Tensor activated;  ///< [tokens * top_k, inner]
  Tensor rows;       ///< [tokens * top_k, hidden]
};

/// The edits that LogitsEditor of models/sampler makes to a row before sampling. Its token ids are
/// lists in one array: consecutive ones from `first` on, and others from `history` on.
struct RowEdits {
  std::int32_t first = 0;
  std::int32_t allowed = 0;  ///< number of the only allowed tokens; 0: all are
  std::int32_t masked = 0;
  std::int32_t biased = 0;  ///< pairs of a token and the bits of its bias, each token once
  std::int32_t history = 0;
  std::int32_t prompt = 0;  ///< number of penalised prompt tokens
  std::int32_t output = 0;
  float repetition_penalty = 1.0F;
  float frequency_penalty = 0.0F;
  float presence_penalty = 0.0F;

  std::int64_t tokens() const {
    return std::int64_t{allowed} + masked + 2 * std::int64_t{biased} + prompt + output;
  }
};

/// A row of logits whose token the device samples by the SamplingParams of models/sampler.
struct SampledRow {
  std::int32_t row = 0;  ///< index in the logits and in the ids
  std::uint32_t choice = 0;
  std::uint64_t seed = 0;
  std::uint64_t position = 0;  ///< of the new token
  float temperature = 1.0F;
  float top_p = 1.0F;
  float min_p = 0.0F;
  std::int32_t top_k = 0;
  RowEdits edits = {};
};

/// Captured operations: made by `Ops::capture`, used by `Ops::replay` of the same Ops.
class CapturedGraph {
 public:
  virtual ~CapturedGraph() = default;
};

/// A row of logits for which log-probabilities of one token and of the best ones are requested.
struct ScoredRow {
  std::int32_t row = 0;   ///< index in the logits, ids and scores
  std::int32_t id = -1;   ///< the token; -1: the row's entry in `ids`
  std::int32_t best = 0;  ///< number of best tokens
};

/// The numbers from which models/sampler computes log-probabilities.
struct RowScores {
  static constexpr std::int32_t max_best = 32;

  std::uint64_t sum = 0;  ///< of the weights at temperature 1, in units of 2^-44
  float max = 0.0F;       ///< the largest logit
  float logit = 0.0F;     ///< the token's
  std::int32_t id = -1;
  std::int32_t rank = 0;  ///< 1 + the number of likelier tokens; 0: a logit is not finite
  std::int32_t best_ids[max_best] = {};  ///< best first, the lower id of equals first
  float best_logits[max_best] = {};
};

/// The progress of reading weights.
struct LoadedWeights {
  std::uint64_t bytes = 0;         ///< on the device
  std::uint64_t total_bytes = 0;   ///< of all requested weights
  std::uint64_t direct_bytes = 0;  ///< read from files past the page cache
  double seconds = 0.0;            ///< since the first was requested
};

/// A device's own memory.
struct DeviceMemory {
  std::uint64_t free_bytes = 0;
  std::uint64_t total_bytes = 0;
};

/// The only interface to a device: dense kernels on views. One Ops per rank, used by one thread.
///
/// Every operation only enqueues (the CPU's run synchronously), allocates nothing that grows with
/// calls and never waits for the device; inputs must stay valid until `synchronize`. Callers check
/// shapes; release builds do not check them again per call. Activations are `activation_dtype()`:
/// f32 on CPU. Weights are stored as bf16 if that loses nothing or the model's dtype is bf16,
/// otherwise as f32; GEMMs accumulate in f32.
///
/// Exactness (docs/architecture.md): an output row depends only on its own input row and the
/// weights; each element of a GEMM is one chain of fused multiply-adds over k in ascending order
/// within a segment; the segments of a row-parallel matrix are added as a fixed binary tree.
class Ops {
 public:
  virtual ~Ops() = default;

  virtual DType activation_dtype() const = 0;

  /// The number of rows on which consecutive operations run best together, because the output of
  /// one is still in the cache for the next.
  virtual std::int64_t rows_at_once() const { return std::int64_t{1} << 40; }

  /// None if the device shares the host's memory.
  virtual std::optional<DeviceMemory> memory() { return std::nullopt; }

  /// Device memory, zeroed; resource_exhausted names the bytes asked for.
  virtual Result<DeviceTensor> allocate(DType dtype, const Shape& shape) = 0;
  /// Host memory, zeroed, that the device can access asynchronously: with other memory the host may
  /// wait for copies. Default: for a device that shares the host's memory.
  virtual Result<DeviceTensor> allocate_host(DType dtype, const Shape& shape) {
    return allocate(dtype, shape);
  }
  /// Host to device and back; both dense, equal dtype and element count.
  virtual void upload(const Tensor& host, const Tensor& device) = 0;
  virtual void download(const Tensor& device, const Tensor& host) = 0;

  /// A point in the sequence of enqueued work.
  using DeviceEvent = std::uint64_t;
  /// The point after all work enqueued so far. Only the latest dozens are kept: for an older one,
  /// wait() waits for a later point.
  virtual DeviceEvent record_event() { return 0; }
  /// Returns when all work enqueued before `event` is done, whatever was enqueued later.
  virtual Result<void> wait(DeviceEvent event) {
    (void)event;
    return synchronize();
  }
  /// True if wait(event) would return at once.
  virtual bool query(DeviceEvent event) {
    (void)event;
    return true;
  }
  /// Returns when everything enqueued so far is done.
  virtual Result<void> synchronize() = 0;

  /// True if operations over a cache of `shape` and `stored` can be captured, so that one call
  /// enqueues a pass of hundreds of them.
  virtual bool supports_graph(const AttentionShape& shape, DType stored) const {
    (void)shape, (void)stored;
    return false;
  }
  /// Captures the operations that `enqueue` enqueues, without running them. Whenever it is replayed
  /// they are the same operations on the same memory; it must not upload, download or synchronize.
  /// Errors: those of `enqueue`; unsupported if supports_graph is false; resource_exhausted.
  virtual Result<std::unique_ptr<CapturedGraph>> capture(
      const std::function<Result<void>()>& enqueue) {
    (void)enqueue;
    return fail(ErrorCode::unsupported, "this device records no operations");
  }
  virtual void replay(const CapturedGraph& graph) { (void)graph; }

  /// Packs `weight` [n, k] (f32, bf16 or f16, host memory, may be freed afterwards) for GEMMs in
  /// `segments` equal parts of k: a power of two that divides k; 1 for column-parallel matrices.
  virtual Result<std::unique_ptr<Linear>> prepare(const Tensor& weight, int segments) = 0;
  /// Like prepare, for `experts` matrices; weights[e] is [n, k].
  virtual Result<std::unique_ptr<GroupedLinear>> prepare_grouped(std::span<const Tensor> weights,
                                                                 int segments) = 0;
  /// A table of rows for `embed`: [vocab_local, hidden] in the stored dtype.
  virtual Result<DeviceTensor> prepare_table(const Tensor& weight) = 0;

  /// Like prepare, prepare_grouped and prepare_table, for weights that stay in place until
  /// finish_loading(): a device with memory of its own reads them meanwhile, several at a time. The
  /// results may be used after that. Errors: also io, now or from finish_loading().
  virtual Result<std::unique_ptr<Linear>> load(const StoredMatrix& weight, int segments);
  virtual Result<std::unique_ptr<GroupedLinear>> load_grouped(std::span<const StoredMatrix> weights,
                                                              int segments);
  virtual Result<DeviceTensor> load_table(const StoredMatrix& weight);
  /// Returns when all weights are read; calls `progress`, if set, now and then. Reports nothing for
  /// a device that shares the host's memory, whose weights are available at once.
  virtual Result<LoadedWeights> finish_loading(
      const std::function<void(const LoadedWeights&)>& progress) {
    (void)progress;
    return LoadedWeights{};
  }
  /// A Linear that uses the memory of `table`, from prepare_table or load_table, which outlives it;
  /// null if GEMMs need another layout.
  virtual std::unique_ptr<Linear> share_table(const Tensor& table) {
    (void)table;
    return nullptr;
  }

  /// One layer's cache: `blocks` pages of `block_size` tokens. dtype f32 or bf16.
  virtual Result<std::pair<DeviceTensor, DeviceTensor>> allocate_kv(std::int64_t blocks,
                                                                    std::int32_t block_size,
                                                                    const AttentionShape& shape,
                                                                    DType dtype) = 0;
  /// Host memory for `host_blocks` blocks of a model's `caches`, all from allocate_kv with as many
  /// blocks; it is allocated as it is used. Errors: resource_exhausted.
  virtual Result<std::unique_ptr<KvSwap>> make_swap(std::span<const KvLayer> caches,
                                                    std::int64_t host_blocks) = 0;

  /// out[i] = table[ids[i] - vocab_begin], zeros (+0.0) where that is not a local row; never -0.0.
  /// ids [tokens] i32, out [tokens, hidden].
  virtual void embed(const Tensor& table, const Tensor& ids, std::int64_t vocab_begin,
                     const Tensor& out) = 0;

  /// out = x / sqrt(mean(x^2) + eps) * weight, over the last extent (Zhang & Sennrich 2019,
  /// RMSNorm). x, out [rows, hidden] (may be the same memory); weight [hidden] f32.
  virtual void rms_norm(const Tensor& x, const Tensor& weight, float eps, const Tensor& out) = 0;

  /// residual += x, then out = rms_norm(residual). All [rows, hidden].
  virtual void add_rms_norm(const Tensor& residual, const Tensor& x, const Tensor& weight,
                            float eps, const Tensor& out) = 0;

  /// residual += x, rounded like in add_rms_norm. Both [rows, hidden].
  virtual void add(const Tensor& residual, const Tensor& x) = 0;

  /// x += bias, row by row. x [rows, n] f32 or activation dtype; bias [n] f32.
  virtual void add_bias(const Tensor& x, const Tensor& bias) = 0;

  /// out = x . weight^T. x [rows, k], out [rows, n] f32 or activation dtype. Rows may be 0.
  virtual void linear(const Linear& weight, const Tensor& x, const Tensor& out) = 0;

  /// linear, then silu_mul: out [rows, n / 2]. `scratch` [rows, n] may be overwritten.
  virtual void linear_gate_up(const Linear& weight, const Tensor& x, const Tensor& scratch,
                              const Tensor& out) {
    linear(weight, x, scratch);
    silu_mul(scratch, out);
  }

  /// For each token of qkv [tokens, (heads + 2 kv_heads) * head_dim] (q heads, k heads, v heads):
  /// normalises each q and k head with q_norm, k_norm ([head_dim] f32; empty tensors: no norm),
  /// rotates them (`rope` [max_position, head_dim] f32: cos of the first half, then sin; Su et al.
  /// 2021 in the half-split form), writes k and v to the cache at kv_slots and q to
  /// q_out [tokens, heads * head_dim].
  virtual void norm_rope_store(const Tensor& qkv, const Tensor& q_norm, const Tensor& k_norm,
                               float eps, const Tensor& rope, const AttentionShape& shape,
                               const AttentionBatch& batch, const KvLayer& cache,
                               const Tensor& q_out) = 0;

  /// Like norm_rope_store, for a latent cache (shape.latent = L, head_dim = L + R). kv [tokens, L +
  /// R]: RMSNorm with `norm` ([L] f32) of the first L elements, and rotation of the others, give
  /// the token's key. q_out [tokens, heads * (L + R)]: for each head its part of latent_q [tokens,
  /// heads * L], then its part of rotated_q [tokens, heads * R], rotated. rope [max_position, R].
  virtual void latent_rope_store(const Tensor& latent_q, const Tensor& rotated_q, const Tensor& kv,
                                 const Tensor& norm, float eps, const Tensor& rope,
                                 const AttentionShape& shape, const AttentionBatch& batch,
                                 const KvLayer& cache, const Tensor& q_out) = 0;

  /// Prepares attention of `shape` over `batch` on the host: call before the first layer of a pass,
  /// for each of its batches, outside of capture(). It serves all layers of this shape, which are
  /// those of one cache group.
  virtual void plan_attention(const AttentionShape& shape, const AttentionBatch& batch) {
    (void)shape, (void)batch;
  }

  /// Causal attention of q [tokens, heads * head_dim] over the paged cache, including this pass's
  /// own tokens, which are read back at stored precision; online softmax over chunks of absolute
  /// positions (Milakov & Gimelshein 2018), long contexts split at fixed absolute positions. Blocks
  /// entirely before a sequence's first_position - window + 1 are not read. out [tokens, heads *
  /// value_dim].
  virtual void attention(const Tensor& q, const AttentionShape& shape, const AttentionBatch& batch,
                         const KvLayer& cache, const Tensor& out) = 0;

  /// out = silu(gate) * up. gate_up [rows, 2 * inner] (gate first), out [rows, inner].
  virtual void silu_mul(const Tensor& gate_up, const Tensor& out) = 0;

  /// Scores of all experts in f32, then the top_k largest of score + bias (ties: the lower index),
  /// best first; all different, also where logits are not finite. The weights are the scores,
  /// without bias. logits [tokens, experts] f32; bias [experts] f32, or empty: none; ids [tokens,
  /// top_k] i32; weights [tokens, top_k] f32.
  virtual void route(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
                     const Tensor& ids, const Tensor& weights) = 0;

  /// Sorts (token, expert) assignments by expert, keeping those of local experts [first_expert,
  /// first_expert + local). ids [tokens, top_k], a token's all different; fills batch.
  virtual void permute(const Tensor& ids, std::int64_t first_expert, const ExpertBatch& batch) = 0;

  /// counts[e] += the rows of expert e in `batch`. counts [local experts] i64.
  virtual void count_rows(const ExpertBatch& batch, const Tensor& counts) = 0;

  /// permute and count_rows for ids in equal parts: only the first received_counts[p] rows of part
  /// p count; the others are not read. received_counts [parts] i32, on the device.
  virtual void permute_received(const Tensor& ids, const Tensor& received_counts,
                                std::int64_t first_expert, const ExpertBatch& batch,
                                const Tensor& counts) = 0;

  /// route, permute and count_rows: fills `choices` and `batch`.
  virtual void route_and_permute(const Tensor& logits, const Tensor& bias,
                                 const RouterOptions& options, const ExpertChoices& choices,
                                 const ExpertBatch& batch, const Tensor& counts) {
    route(logits, bias, options, choices.ids, choices.weights);
    permute(choices.ids, choices.first_expert, batch);
    count_rows(batch, counts);
  }

  /// For sorted row i of expert e: out[i] = x[row_of(i)] . weights[e]^T. With `gather`, row_of(i)
  /// is source[i] / top_k (x [tokens, k]); otherwise i (x is sorted). out [tokens * top_k, n],
  /// sorted; with `scatter` the out row is source[i] instead. Rows beyond offsets[last] are left
  /// unchanged.
  virtual void grouped_linear(const GroupedLinear& weights, const Tensor& x,
                              const ExpertBatch& batch, std::int64_t top_k, bool gather,
                              bool scatter, const Tensor& out) = 0;

  /// grouped_linear with gather, then silu_mul: out [tokens * top_k, n / 2], sorted. `scratch`
  /// [tokens * top_k, n] may be overwritten.
  virtual void grouped_gate_up(const GroupedLinear& weights, const Tensor& x,
                               const ExpertBatch& batch, std::int64_t top_k, const Tensor& scratch,
                               const Tensor& out) {
    grouped_linear(weights, x, batch, top_k, true, false, scratch);
    silu_mul(scratch, out);
  }

  /// out[t] = sum over c in order of weights[t, c] * x[t * top_k + c]; the first product starts the
  /// chain. x [tokens * top_k, hidden] f32 or activation dtype, weights [tokens, top_k], out
  /// [tokens, hidden].
  virtual void combine(const Tensor& x, const Tensor& weights, const Tensor& out) = 0;

  /// Like combine, for the choices among the `local` experts from choices.first_expert on; x is not
  /// read for the others. Zeros for a token without any.
  virtual void combine_local(const Tensor& x, const ExpertChoices& choices, std::int64_t local,
                             const Tensor& out) = 0;

  /// grouped_gate_up, grouped_linear with `down` and combine_local: out [tokens, hidden] is the
  /// local experts' contribution to x [tokens, hidden]. `choices` and `batch` are from
  /// route_and_permute.
  virtual void expert_mlp(const GroupedLinear& gate_up, const GroupedLinear& down, const Tensor& x,
                          const ExpertChoices& choices, const ExpertBatch& batch,
                          const ExpertScratch& scratch, const Tensor& out) {
    const std::int64_t top_k = choices.ids[1];
    grouped_gate_up(gate_up, x, batch, top_k, scratch.gate_up, scratch.activated);
    grouped_linear(down, scratch.activated, batch, top_k, false, true, scratch.rows);
    combine_local(scratch.rows, choices, down.experts(), out);
  }

  /// out = the sum of x's parts in the order of parallel/collectives/tree_sum.hpp. x [parts * rows,
  /// width] f32, part after part; out [rows, width] f32, not the same memory.
  virtual void tree_sum(const Tensor& x, const Tensor& out) = 0;

  /// out[i] = x[rows[i]]. rows [n] i32, out [n, width].
  virtual void gather_rows(const Tensor& x, const Tensor& rows, const Tensor& out) = 0;

  /// Puts parts of rows side by side: out[r, p * width + c] = parts[p * rows + r, c], as far as out
  /// has columns. parts [ranks * rows, width], out [rows, n].
  virtual void concat_columns(const Tensor& parts, const Tensor& out) = 0;

  /// Resolves ids that were unknown when they were uploaded: ids[i] < 0 becomes chosen[-1 -
  /// ids[i]], or 0 if that is negative too. ids [tokens] i32, chosen [n] i32.
  virtual void resolve_sampled_ids(const Tensor& chosen, const Tensor& ids) = 0;

  /// True if sample() supports such a row of `vocab` logits; otherwise the host must sample.
  virtual bool can_sample(const SampledRow& row, std::int64_t vocab) const {
    (void)row, (void)vocab;
    return false;
  }
  /// ids[rows[i].row] = the token that sample() of models/sampler chooses from that row of logits;
  /// -1 if a logit is not finite or no token is left. Other ids are left unchanged. Each row at
  /// most once, all supported by can_sample; rows without edits should come first. logits [n,
  /// vocab] f32; edited [tokens] i32, the rows' edits on the device; ids [n] i32.
  virtual void sample(const Tensor& logits, std::span<const SampledRow> rows, const Tensor& edited,
                      const Tensor& ids) {
    (void)logits, (void)rows, (void)edited, (void)ids;
  }

  /// True if score() supports such a row of `vocab` logits.
  virtual bool can_score(const ScoredRow& row, std::int64_t vocab) const {
    (void)row, (void)vocab;
    return false;
  }
  /// scores[rows[i].row] = the result of token_logprobs() of models/sampler for that row of logits,
  /// with min(best, vocab) best tokens. Others are left unchanged. Each row at most once, all
  /// supported by can_score. logits [n, vocab] f32; ids [n] i32; scores [n * sizeof(RowScores)] u8.
  virtual void score(const Tensor& logits, std::span<const ScoredRow> rows, const Tensor& ids,
                     const Tensor& scores) {
    (void)logits, (void)rows, (void)ids, (void)scores;
  }

  /// linear with `router`, then route_and_permute of its output. x [tokens, hidden]; logits
  /// [tokens, experts] f32 may be overwritten.
  virtual void route_tokens(const Linear& router, const Tensor& x, const Tensor& logits,
                            const Tensor& bias, const RouterOptions& options,
                            const ExpertChoices& choices, const ExpertBatch& batch,
                            const Tensor& counts) {
    linear(router, x, logits);
    route_and_permute(logits, bias, options, choices, batch, counts);
  }
};

}  // namespace troupe
