#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/layers/model_limits.hpp"
#include "models/ops/ops.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/sharding/sharding.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// How the ranks that hold the same weights share the rows of a pass. Each computes its own rows
/// (ContextSplit) through all layers and stores their keys and values; these are all-gathered, so
/// that every rank has the whole KV cache and attends with its own queries over it (Llama 3,
/// Grattafiori et al. 2024, section 3.3.2). So computation is divided, and neither weights nor KV
/// memory are. A row's arithmetic is that of one rank.
///
/// A pass may also be computed whole by every rank, without any exchange: that is faster for few
/// rows. On one rank all passes are.
class ContextGroup {
 public:
  /// `collectives` of the device, null on one rank, and `ops` outlive the object. `shape`: of the
  /// cache of all layers, whatever their windows. Errors: resource_exhausted.
  static Result<ContextGroup> create(Collectives* collectives, const AttentionShape& shape,
                                     const ModelLimits& limits, Ops& ops);

  /// Begins a pass of `rows`, divided into `rows_per_rank`, which is valid during the pass, or
  /// whole if that is empty.
  void begin_pass(std::int64_t rows, std::span<const std::int64_t> rows_per_rank);
  int size() const { return collectives_ == nullptr ? 1 : collectives_->size(); }
  /// True if the current pass is divided.
  bool divides() const { return !rows_per_rank_.empty(); }
  std::int64_t rows() const { return rows_; }  ///< of the current pass, on all ranks together
  Slice own_rows() const { return own_; }      ///< of the current pass: all unless it is divided

  /// Completes `all` [rows, width] of a divided pass, of which this rank has written own_rows.
  /// Errors: those of Collectives.
  Result<void> all_gather(const Tensor& all);
  /// Completes a layer's `cache` in a divided pass, where this rank has stored the keys and values
  /// of its own rows. `kv_slots` [rows]: of all rows of the pass. Errors: those of Collectives.
  Result<void> all_gather_kv(const Tensor& kv_slots, const KvLayer& cache);

 private:
  ContextGroup(Collectives* collectives, const AttentionShape& shape, Ops& ops)
      : collectives_(collectives), shape_(shape), ops_(&ops) {}

  Collectives* collectives_;
  AttentionShape shape_;
  Ops* ops_;
  DeviceTensor kv_rows_;  ///< [max_batch_tokens, cached elements] as the cache; empty on one rank
  std::int64_t rows_ = 0;
  Slice own_;
  std::span<const std::int64_t> rows_per_rank_;  ///< of the current pass; empty unless divided
};

}  // namespace troupe
