#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "models/layers/model_limits.hpp"
#include "models/layers/parallel/tensor_group.hpp"
#include "models/ops/ops.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/sharding/sharding.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The rows of one replica of a step domain in a pass.
struct ReplicaRows {
  std::int64_t tokens = 0;
  std::int64_t head_rows = 0;  ///< of these, that need logits

  bool operator==(const ReplicaRows&) const = default;
};

/// How replicas that attend to their own requests share the other dense matrices (data-parallel
/// attention, as in SGLang): the MLPs, shared experts, embedding and head are cut over the ranks of
/// all replicas of a step domain as over tensor ranks. Before such a matrix the rows of all
/// replicas are all-gathered, replica after replica, and its partial sums are reduce-scattered to
/// their owners. Sums are added in tree order, so the bits are those of any other tensor size.
///
/// A replica's rows are owned in ceil_slices by its tensor ranks. Where all replicas together have
/// more rows than a pass may have, they are computed part by part, so that the buffers are those of
/// one replica. Every rank of the group takes part in each operation, also one without rows.
class DenseGroup {
 public:
  /// A part of the rows of all replicas.
  struct Part {
    std::int64_t rows = 0;  ///< of all ranks, at least 1
    Slice own = {};         ///< this rank's, among the rows of its replica; may be empty
    std::span<const std::int64_t> rows_per_rank = {};
  };

  /// `collectives` of the device, over Mesh::dense_group; they, `tensor`, which is the rank's
  /// tensor group and divides no residual stream, and `ops` outlive the object. Errors:
  /// resource_exhausted.
  static Result<DenseGroup> create(Collectives& collectives, TensorGroup& tensor,
                                   const ModelLimits& limits, std::int64_t hidden, Ops& ops);

  int size() const { return collectives_->size(); }
  Collectives& collectives() const { return *collectives_; }

  /// Sets the number of rows of each replica from now on; the same on all ranks.
  void set_rows(std::span<const std::int64_t> rows_per_replica);
  bool has_rows() const { return end_of_rank(size() - 1) > 0; }  ///< of any replica

  /// Calls `body(part)` for parts of at most `most` rows that together are all rows. Errors: its
  /// own.
  template <class Body>
  Result<void> for_each_part(std::int64_t most, Body&& body) {
    for (std::int64_t begin = 0; begin < end_of_rank(size() - 1); begin += most) {
      TROUPE_CHECK(body(part(begin, most)));
    }
    return {};
  }

  /// Returns the part's rows of all replicas: [part.rows, ...], until the next call. `x`: all rows
  /// of this replica, at most as wide as the residual stream. Errors: those of Collectives.
  Result<Tensor> gather(const Tensor& x, const Part& part);

  /// Lets `compute(rows, partial)` write this rank's partial sums [rows, width] of gathered rows of
  /// x, and writes the sums over the ranks for this replica's rows to `out` [own rows, width]. With
  /// `one_has_each` every element is zero on all ranks but one. Errors: those of Collectives.
  template <class Compute>
  Result<void> sum_over_ranks(const Tensor& x, const Tensor& out, Compute&& compute,
                              bool one_has_each = false) {
    TROUPE_CHECK(for_each_part(max_rows_, [&](const Part& part) -> Result<void> {
      TROUPE_TRY(const Tensor rows, gather(x, part));
      // An element that is zero on all ranks but one loses nothing in its final dtype.
      const DType dtype = one_has_each ? out.dtype() : partial_dtype_;
      const Shape shape{part.rows, out[1]};
      Tensor partial = collectives_->staging(dtype, shape);
      if (partial.data() == nullptr) partial = Tensor(partial_->data(), dtype, shape);
      compute(rows, partial);
      return collectives_->reduce_scatter_tree(partial, out.rows(part.own.begin, part.own.count),
                                               part.rows_per_rank);
    }));
    return out[0] == 0 ? Result<void>() : tensor_->gather_slices(out);
  }

 private:
  DenseGroup(Collectives& collectives, TensorGroup& tensor, DType partial_dtype,
             std::int64_t max_rows)
      : collectives_(&collectives),
        tensor_(&tensor),
        partial_dtype_(partial_dtype),
        max_rows_(max_rows) {}
  /// The rows from `begin` on, `most` at most.
  Part part(std::int64_t begin, std::int64_t most);
  std::int64_t end_of_rank(int rank) const {
    return ends_.empty() ? 0 : ends_[static_cast<std::size_t>(rank)];
  }

  Collectives* collectives_;
  TensorGroup* tensor_;
  DType partial_dtype_;
  std::int64_t max_rows_;
  DeviceTensor gathered_;           ///< [max_rows, hidden] activation
  DeviceTensor partial_;            ///< [max_rows, hidden]: partial sums too large for staging
  std::vector<std::int64_t> ends_;  ///< of each rank's rows among those of all ranks
  std::vector<std::int64_t> rows_per_rank_;  ///< of the latest part
  std::int64_t replica_begin_ = 0;           ///< of this rank's replica among all rows
};

}  // namespace troupe
