#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "models/ops/columns.hpp"
#include "models/ops/kv_compaction.hpp"
#include "models/ops/kv_residual.hpp"
#include "models/ops/kv_row_layout.hpp"
#include "models/ops/kv_swap.hpp"
#include "models/ops/op_checks.hpp"
#include "models/ops/sparse_index.hpp"
#include "parallel/device/tensor.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// One sequence's part of a forward pass: `rows` consecutive tokens, whose queries see the cache up
/// to and including themselves.
struct SequenceSpan {
  std::int32_t first_row = 0;  ///< row of its first token in the batch
  std::int32_t rows = 0;       ///< its tokens in this pass, >= 1
  /// Position of its first token in this pass; in a cache without some tokens (KvPolicy) the entry
  /// of its first token.
  std::int32_t first_position = 0;
  std::int32_t block_offset = 0;  ///< begin of its block table in `block_tables`
};
constexpr std::int64_t numbers_of_span = 4;
static_assert(sizeof(SequenceSpan) == numbers_of_span * sizeof(std::int32_t));

/// The inputs of attention for a pass, or for a part of its rows. Tensors are on the device; the
/// host knows the spans' numbers. Valid during one forward call.
struct AttentionBatch {
  Tensor positions;     ///< [tokens] i32: by which queries and keys are rotated
  Tensor kv_slots;      ///< [tokens] i32: block * block_size + offset in it
  Tensor block_tables;  ///< [sum of blocks] i32, span after span of the whole pass
  /// In row order, covering all rows, counted from the batch's first.
  std::span<const SequenceSpan> sequences;
  std::int32_t block_size = 16;
  /// [sequences, 4] i32: the whole pass's spans on the device; the CPU needs none.
  Tensor spans;
  /// The enqueued operations are captured (StreamOps::capture) and replayed for other batches:
  /// tensors at the same addresses, as many sequences, each of one row, planned with the same
  /// layout.
  bool graph_captured = false;
  std::int64_t first_row = 0;  ///< of the batch in the pass
  int part = 0;                ///< of the pass: distinguishes batches that are planned at the same
                               ///< time
  /// block_tables on the host, by which attention finds prefixes that sequences share; empty: it
  /// does not look for them.
  std::span<const std::int32_t> host_block_tables = {};
  /// The last rows of each of `sequences` whose attention counts (accumulate_weights); empty: none.
  std::span<const std::int32_t> observed_rows = {};
  /// [sequences] i32: the same on the device, if there are some; the CPU needs none. Of a batch
  /// that is captured only these count.
  Tensor device_observed_rows = {};
};

/// What AttentionOps::plan chose for a batch.
struct PlannedAttention {
  /// Captured attention may be replayed for batches with as many sequences and the same layout.
  int layout = 0;
  /// Positions whose keys and values rows do not read because they are in a prefix that is read
  /// once for several rows (cascade attention).
  std::int64_t shared_positions = 0;
};

/// One layer's KV pages on one rank: `blocks` pages of `block_size` tokens for its local KV heads,
/// in a layout known only to Ops.
struct KvLayer {
  Tensor keys;
  Tensor values;  ///< empty if values are part of the keys (AttentionShape::latent)
  /// [blocks, kv_heads, block_size] f32: the attention that a token has received from observed
  /// rows; empty where nobody asks for it.
  Tensor weights = {};
  /// Under AttentionShape::index: the index keys, pages of allocate_kv for index_cache_shape.
  Tensor index_keys = {};
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
  /// Each layer has sinks; set also where theirs are not there, as in plan.
  bool has_sinks = false;

  /// Which keys a row attends to (attend_sparse); of latent attention only.
  SparseIndex index = {};

  /// Of a cache of i4x2.
  KvResidual residual = KvResidual::none;

  /// Fixed scales of keys and values in a cache of 8-bit codes (KvRowLayout); 0: each row has that
  /// of its largest magnitude. Not of latent attention.
  float key_scale = 0.0F;
  float value_scale = 0.0F;

  std::int64_t value_dim() const { return latent > 0 ? latent : head_dim; }
  /// Numbers that a layer's cache holds of a token.
  std::int64_t cached_elements() const { return latent > 0 ? head_dim : 2 * kv_heads * head_dim; }
  /// How a cache of `stored` holds them.
  KvRowLayout row_layout(DType stored) const { return KvRowLayout::of(head_dim, latent, stored); }
  /// The dtypes of keys and values in a cache of `stored`: of i4x2 with residuals, i8.
  DType key_dtype(DType stored) const {
    return stored == DType::i4x2 && residual != KvResidual::none ? DType::i8 : stored;
  }
  DType value_dtype(DType stored) const {
    return stored == DType::i4x2 && residual == KvResidual::all ? DType::i8 : stored;
  }
  /// Elements of a token in a cache of `stored`, with the scales of codes.
  std::int64_t stored_elements(DType stored) const {
    const auto row = [&](DType dtype) { return row_layout(dtype).row_elements; };
    if (latent > 0) return row(stored);
    return kv_heads * (row(key_dtype(stored)) + row(value_dtype(stored)));
  }
};

/// The shape of a cache of index keys: keys alone, of index.dim elements, which no head attends to.
inline AttentionShape index_cache_shape(const SparseIndex& index) {
  AttentionShape shape;
  shape.heads = shape.kv_heads = 1;
  shape.head_dim = index.dim;
  shape.latent = index.dim - 1;
  return shape;
}

/// RMSNorm over all query heads of a token together, and over all its KV heads, which are on
/// several ranks.
struct ProjectionNorm {
  /// [ranks * tokens, local heads + local kv_heads] f32: square_sums of all ranks, in order.
  Tensor square_sums;
  std::int64_t ranks = 1;
  std::int64_t kv_copies = 1;  ///< neighbouring ranks that have the same KV heads
  Tensor q_weight;             ///< [local heads * head_dim] f32
  Tensor k_weight;             ///< [local kv_heads * head_dim] f32
  float eps = 0.0F;
};

/// The paged KV cache and attention over it. Operations only enqueue, as ops.hpp says.
class AttentionOps {
 public:
  virtual ~AttentionOps() = default;

  /// One layer's cache: `blocks` pages of `block_size` tokens. dtype f32, bf16, or i8, f8_e4m3 or
  /// i4x2, whose pages hold scales, too (KvRowLayout); a device may have pages of their keys and
  /// values by turns, so that neither tensor is contiguous.
  virtual Result<std::pair<DeviceTensor, DeviceTensor>> allocate_kv(std::int64_t blocks,
                                                                    std::int32_t block_size,
                                                                    const AttentionShape& shape,
                                                                    DType dtype) = 0;

  /// Host memory for `host_blocks` blocks of a model's `caches`, all from allocate_kv with as many
  /// blocks; it is allocated as it is used. Errors: resource_exhausted.
  virtual Result<std::unique_ptr<KvSwap>> make_swap(std::span<const KvLayer> caches,
                                                    std::int64_t host_blocks) = 0;

  /// True if operations over a cache of `shape` and `stored` can be captured, so that one call
  /// enqueues a pass of hundreds of them.
  virtual bool supports_graph(const AttentionShape& shape, DType stored) const = 0;

  /// For each token of qkv [tokens, (heads + 2 kv_heads) * head_dim] (q heads, k heads, v heads):
  /// normalises each q and k head with q_norm, k_norm ([head_dim] f32; empty tensors: no norm),
  /// rotates them (`rope` [max_position, head_dim] f32: cos of the first half, then sin; Su et al.
  /// 2021 in the half-split form), writes k and v to the cache at kv_slots and q to
  /// q_out [tokens, heads * head_dim].
  void norm_rope_store(const Tensor& qkv, const Tensor& q_norm, const Tensor& k_norm, float eps,
                       const Tensor& rope, const AttentionShape& shape, const AttentionBatch& batch,
                       const KvLayer& cache, const Tensor& q_out) {
    if constexpr (op_checks::enabled) {
      op_checks::norm_rope_store(qkv, q_norm, k_norm, rope, shape, batch, cache, q_out);
    }
    do_norm_rope_store(qkv, q_norm, k_norm, eps, rope, shape, batch, cache, q_out);
  }

  /// Like norm_rope_store, for a latent cache (shape.latent = L, head_dim = L + R). kv [tokens, L +
  /// R]: RMSNorm with `norm` ([L] f32) of the first L elements, and rotation of the others, give
  /// the token's key. q_out [tokens, heads * (L + R)]: the last R elements of each head become its
  /// part of rotated_q [tokens, heads * R], rotated; the others are left unchanged. rope
  /// [max_position, R].
  void latent_rope_store(const Columns& rotated_q, const Columns& kv, const Tensor& norm, float eps,
                         const Tensor& rope, const AttentionShape& shape,
                         const AttentionBatch& batch, const KvLayer& cache, const Tensor& q_out) {
    if constexpr (op_checks::enabled) {
      op_checks::latent_rope_store(rotated_q, kv, norm, rope, shape, batch, cache, q_out);
    }
    do_latent_rope_store(rotated_q, kv, norm, eps, rope, shape, batch, cache, q_out);
  }

  /// Of sparse attention: rotates the first head_dim - latent elements of each head of index.query
  /// and of `key` ([tokens, index.dim] activation), in halves and in place, and writes the key to
  /// cache.index_keys at kv_slots. rope as in latent_rope_store.
  void index_rope_store(const IndexQueries& index, const Tensor& key, const Tensor& rope,
                        const AttentionShape& shape, const AttentionBatch& batch,
                        const KvLayer& cache) {
    if constexpr (op_checks::enabled) op_checks::index_rope_store(index, key, rope, shape, batch);
    do_index_rope_store(index, key, rope, shape, batch, cache);
  }

  /// sums[t, h] = the sum of squares of head h of token t, for the query heads and then the key
  /// heads of qkv (as in norm_rope_store). sums [tokens, heads + kv_heads] f32.
  void square_sums(const Tensor& qkv, const AttentionShape& shape, const Tensor& sums) {
    if constexpr (op_checks::enabled) op_checks::square_sums(qkv, shape, sums);
    do_square_sums(qkv, shape, sums);
  }
  /// Normalises queries and keys in qkv. Sums of squares are added in the order of the heads in the
  /// whole model.
  void norm_projections(const Tensor& qkv, const AttentionShape& shape,
                        const ProjectionNorm& norm) {
    if constexpr (op_checks::enabled) op_checks::norm_projections(qkv, shape, norm);
    do_norm_projections(qkv, shape, norm);
  }

  /// Copies what the cache holds of the tokens at `slots` [tokens] i32 (as kv_slots) to `rows`
  /// [tokens, stored_elements] of the keys' dtype, in an order of elements known only to Ops.
  void gather_kv(const KvLayer& cache, const AttentionShape& shape, const Tensor& slots,
                 const Tensor& rows) {
    if constexpr (op_checks::enabled) op_checks::kv_rows(cache, shape, slots, rows);
    do_gather_kv(cache, shape, slots, rows);
  }
  /// Copies rows of gather_kv, of this cache or of another rank's, to the cache.
  void scatter_kv(const Tensor& rows, const AttentionShape& shape, const Tensor& slots,
                  const KvLayer& cache) {
    if constexpr (op_checks::enabled) op_checks::kv_rows(cache, shape, slots, rows);
    do_scatter_kv(rows, shape, slots, cache);
  }

  /// For caches with weights: sets those of the batch's tokens to 0; then each observed row (batch.
  /// observed_rows), in order, adds the weights of its softmax over its keys to the weights of
  /// their tokens, head after head of those that read a KV head. q as in attend; call it after the
  /// rows' keys are stored.
  void accumulate_weights(const Tensor& q, const AttentionShape& shape, const AttentionBatch& batch,
                          const KvLayer& cache) {
    if constexpr (op_checks::enabled) op_checks::accumulate_weights(q, shape, batch, cache);
    do_accumulate_weights(q, shape, batch, cache);
  }

  /// Removes entries from sequences' caches: what is kept, keys, values and weights, moves to the
  /// first entries in the same order. rope as in norm_rope_store (or latent_rope_store), of at
  /// least as many positions as an entry moves, for `turns_keys`.
  void compact(const KvCompaction& compaction, const AttentionShape& shape, const Tensor& rope,
               const KvLayer& cache) {
    if constexpr (op_checks::enabled) op_checks::compact(compaction, shape, rope, cache);
    do_compact(compaction, shape, rope, cache);
  }

  /// Prepares attention of `shape` over `batch` on the host: call before the first layer of a pass,
  /// for each of its batches, outside of capture(). It serves all layers of this shape, which are
  /// those of one cache group.
  virtual PlannedAttention plan(const AttentionShape& shape, const AttentionBatch& batch) = 0;

  /// Causal attention of q [tokens, heads * head_dim] over the paged cache, including this pass's
  /// own tokens, which are read back at stored precision; online softmax over chunks of absolute
  /// positions (Milakov & Gimelshein 2018), long contexts split at fixed absolute positions. Blocks
  /// entirely before a sequence's first_position - window + 1 are not read. out [tokens, heads *
  /// value_dim].
  void attend(const Tensor& q, const AttentionShape& shape, const AttentionBatch& batch,
              const KvLayer& cache, const Tensor& out) {
    if constexpr (op_checks::enabled) op_checks::attend(q, shape, batch, cache, out);
    do_attend(q, shape, batch, cache, out);
  }

  /// Like attend, but a row attends to the keys that SparseIndex chooses, in the order of their
  /// positions; of equal scores the earlier one's. `index` as index_rope_store has left it.
  void attend_sparse(const Tensor& q, const IndexQueries& index, const AttentionShape& shape,
                     const AttentionBatch& batch, const KvLayer& cache, const Tensor& out) {
    if constexpr (op_checks::enabled) op_checks::attend(q, shape, batch, cache, out);
    do_attend_sparse(q, index, shape, batch, cache, out);
  }

 private:
  virtual void do_index_rope_store(const IndexQueries& index, const Tensor& key, const Tensor& rope,
                                   const AttentionShape& shape, const AttentionBatch& batch,
                                   const KvLayer& cache) = 0;
  virtual void do_attend_sparse(const Tensor& q, const IndexQueries& index,
                                const AttentionShape& shape, const AttentionBatch& batch,
                                const KvLayer& cache, const Tensor& out) = 0;
  virtual void do_square_sums(const Tensor& qkv, const AttentionShape& shape,
                              const Tensor& sums) = 0;
  virtual void do_norm_projections(const Tensor& qkv, const AttentionShape& shape,
                                   const ProjectionNorm& norm) = 0;
  virtual void do_norm_rope_store(const Tensor& qkv, const Tensor& q_norm, const Tensor& k_norm,
                                  float eps, const Tensor& rope, const AttentionShape& shape,
                                  const AttentionBatch& batch, const KvLayer& cache,
                                  const Tensor& q_out) = 0;
  virtual void do_latent_rope_store(const Columns& rotated_q, const Columns& kv, const Tensor& norm,
                                    float eps, const Tensor& rope, const AttentionShape& shape,
                                    const AttentionBatch& batch, const KvLayer& cache,
                                    const Tensor& q_out) = 0;
  virtual void do_gather_kv(const KvLayer& cache, const AttentionShape& shape, const Tensor& slots,
                            const Tensor& rows) = 0;
  virtual void do_scatter_kv(const Tensor& rows, const AttentionShape& shape, const Tensor& slots,
                             const KvLayer& cache) = 0;
  virtual void do_accumulate_weights(const Tensor& q, const AttentionShape& shape,
                                     const AttentionBatch& batch, const KvLayer& cache) = 0;
  virtual void do_compact(const KvCompaction& compaction, const AttentionShape& shape,
                          const Tensor& rope, const KvLayer& cache) = 0;
  virtual void do_attend(const Tensor& q, const AttentionShape& shape, const AttentionBatch& batch,
                         const KvLayer& cache, const Tensor& out) = 0;
};

}  // namespace troupe
