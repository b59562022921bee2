#pragma once

#include <cstddef>

#include "models/layers/parallel/pending_sum.hpp"
#include "models/ops/moe_ops.hpp"
#include "parallel/device/tensor.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The second block of a decoder layer: a dense MLP or experts.
class FeedForward {
 public:
  virtual ~FeedForward() = default;

  /// True if forward() reads all rows of x; false if only those of TensorGroup::token_slice, and
  /// then the others need not be filled in.
  virtual bool reads_all_tokens() const = 0;

  /// x [tokens, hidden] activation, the same on all tensor ranks; out [own rows, hidden] f32
  /// (TensorGroup::own_row_count), not written if the returned sum is pending. Without tokens it
  /// only takes part in other replicas' use of these weights. Errors: those of Collectives.
  virtual Result<PendingSum> forward(const Tensor& x, const Tensor& out) const = 0;
  /// The only matrix that reads x of `tokens` rows, or null: as AttentionBlock::only_reader.
  virtual const Linear* only_reader(std::int64_t /*tokens*/) const { return nullptr; }
  /// [local experts] i64 on the device: the rows that each expert has computed here so far. Empty
  /// without experts.
  virtual Tensor rows_per_expert() const { return {}; }
  /// Its matrices, if MoeOps::expert_mlp can take them as a shared MLP; else none.
  virtual SharedMlp shared_mlp() const { return {}; }
  /// Device memory of its weights.
  virtual std::size_t bytes() const = 0;
};

}  // namespace troupe
