#pragma once

#include "models/layers/layer_context.hpp"

namespace troupe {

/// The token embedding, its rows split over the tensor ranks, or the ranks of a DenseGroup: one
/// rank finds an id, the others contribute zeros.
class Embedding {
 public:
  static Result<Embedding> create(const LayerContext& context);

  /// Looks up the rows of `ids` [tokens] i32 that are this rank's own tokens: out [own tokens,
  /// hidden].
  Result<PendingSum> forward(const Tensor& ids, const Tensor& out) const;
  /// [ceil(vocab / ranks), hidden], for a tied head.
  const Tensor& table() const { return table_.view(); }
  std::size_t bytes() const { return table_->bytes(); }

 private:
  Embedding(const LayerContext& context, DeviceTensor table, std::int64_t first_id, float scale)
      : ops_(context.ops),
        group_(context.tensor),
        dense_(context.dense),
        table_(std::move(table)),
        first_id_(first_id),
        scale_(scale) {}

  Ops& ops_;
  TensorGroup& group_;
  DenseGroup* dense_;      // or null
  DeviceTensor table_;     // [ceil(vocab / ranks), hidden] as stored
  std::int64_t first_id_;  // of this rank's rows
  float scale_;            // of all rows
};

}  // namespace troupe
