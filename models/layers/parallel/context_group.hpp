#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/layers/model_limits.hpp"
#include "models/layers/parallel/context_split.hpp"
#include "models/ops/ops.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/sharding/sharding.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// How the ranks that hold the same weights share the rows of a pass. Each computes its own rows
/// (ContextSplit) through all layers; weights are not divided. There are two kinds of attention:
/// - Heads are split over the ranks, and so is the KV cache (UlyssesAttention); all-to-alls turn
///   own rows of all heads into all rows of own heads and back.
/// - Where there are too few heads, the keys and values of all rows are all-gathered, so that every
///   rank has the whole KV cache and attends with its own queries over it (Llama 3, Grattafiori et
///   al. 2024, section 3.3.2).
/// In both a row's arithmetic is that of one rank.
///
/// A pass may also be computed whole by every rank, which is faster for few rows: without any
/// exchange, or with that of attended heads. On one rank all passes are.
class ContextGroup {
 public:
  /// `collectives` of the device, null on one rank, and `ops` outlive the object. `shape`: this
  /// rank's heads in all layers, whatever their windows. Errors: resource_exhausted.
  static Result<ContextGroup> create(Collectives* collectives, const AttentionShape& shape,
                                     bool shares_heads, const ModelLimits& limits, Ops& ops);

  /// How a pass of `rows`, at least 2 * size(), is divided: rows are adjacent where heads are
  /// split, which balances attention anyway.
  ContextSplit split(std::int64_t rows) const {
    return shares_heads_ ? ContextSplit::contiguous(rows, size())
                         : ContextSplit::zigzag(rows, size());
  }

  /// Begins a pass of `rows`, divided into `rows_per_rank`, which is valid during the pass, or
  /// whole if that is empty.
  void begin_pass(std::int64_t rows, std::span<const std::int64_t> rows_per_rank);
  int rank() const { return collectives_ == nullptr ? 0 : collectives_->rank(); }
  int size() const { return collectives_ == nullptr ? 1 : collectives_->size(); }
  bool shares_heads() const { return shares_heads_; }  ///< true if heads are split over ranks
  /// True if the current pass is divided.
  bool divides() const { return !rows_per_rank_.empty(); }
  std::int64_t rows() const { return rows_; }  ///< of the current pass, on all ranks together
  Slice own_rows() const { return own_; }      ///< of the current pass: all unless it is divided

  /// The rows of the current pass that this rank attends for: all if heads are split.
  Slice attention_rows() const { return shares_heads_ ? Slice{0, rows_} : own_; }

  /// Completes `all` [rows, width] of a divided pass, of which this rank has written own_rows.
  /// Errors: those of Collectives.
  Result<void> all_gather(const Tensor& all);
  /// For split heads in a divided pass. `by_rank` [size * own rows, width]: own rows of the heads
  /// of each rank, rank after rank. Returns all rows of own heads [rows, width]. Errors: those of
  /// Collectives.
  Result<Tensor> rows_to_heads(const Tensor& by_rank);
  /// For split heads. `by_rank` [size * own rows, width] = own rows of the heads of each rank, rank
  /// after rank. own_heads [rows, width]: all rows of own heads. Errors: those of Collectives.
  Result<void> heads_to_rows(const Tensor& own_heads, const Tensor& by_rank);
  /// For heads that are not split: completes a layer's `cache` in a divided pass, where this rank
  /// has stored the keys and values of its own rows. `kv_slots` [rows]: of all rows of the pass.
  /// Errors: those of Collectives.
  Result<void> all_gather_kv(const Tensor& kv_slots, const KvLayer& cache);

 private:
  ContextGroup(Collectives* collectives, const AttentionShape& shape, bool shares_heads, Ops& ops)
      : collectives_(collectives), shape_(shape), shares_heads_(shares_heads), ops_(&ops) {}

  Collectives* collectives_;
  AttentionShape shape_;
  bool shares_heads_;
  Ops* ops_;
  /// Of max_batch_tokens; empty on one rank. Cached elements as in the cache, or queries, keys and
  /// values of own heads in the activation dtype if heads are split.
  DeviceTensor received_;
  std::vector<std::int64_t> own_rows_per_rank_;  ///< own rows for each rank
  std::int64_t rows_ = 0;
  Slice own_;
  std::span<const std::int64_t> rows_per_rank_;  ///< of the current pass; empty unless divided
};

}  // namespace troupe
