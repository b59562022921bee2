#pragma once

#include <cstddef>

#include "models/layers/attention/attention_metadata.hpp"
#include "models/layers/attention/head_rows.hpp"
#include "models/layers/parallel/pending_sum.hpp"
#include "models/ops/ops.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The first block of a decoder layer: self-attention over the paged cache.
class AttentionBlock {
 public:
  virtual ~AttentionBlock() = default;

  /// Writes this pass's part of the cache to `cache`, and the block's output for the rows that this
  /// rank holds (TensorGroup::own_row_count) to `out`, unless the returned sum is pending. x
  /// [tokens, hidden] activation, rope as rope_table, out [own rows, hidden] f32. With `heads` the
  /// output is of these rows only; unless there are none, the rank holds all rows of the pass,
  /// which is not cut. Errors: those of Collectives.
  virtual Result<PendingSum> forward(const Tensor& x, const AttentionMetadata& pass,
                                     const Tensor& rope, const KvLayer& cache, const Tensor& out,
                                     const HeadRows* heads) const = 0;
  /// The only matrix that forward() multiplies x with, before any other operation; in passes that
  /// are cut into parts, part by part. Null: there are other readers of x.
  virtual const Linear* only_reader() const { return nullptr; }
  /// Device memory of its weights.
  virtual std::size_t bytes() const = 0;
};

}  // namespace troupe
