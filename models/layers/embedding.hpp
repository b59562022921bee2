#pragma once

#include "models/layers/layer_context.hpp"

namespace troupe {

/// The token embedding, its rows split over the tensor ranks: every id is found on one rank, the
/// others contribute zeros.
class Embedding {
 public:
  static Result<Embedding> create(const LayerContext& context);

  /// out[i] = the row of ids[i]. ids [tokens] i32, out [tokens, hidden]; the same on all ranks.
  Result<void> forward(const Tensor& ids, const Tensor& out) const;
  std::size_t bytes() const { return table_->bytes(); }

 private:
  Embedding(Ops& ops, Collectives* group, DeviceTensor table, std::int64_t first_id)
      : ops_(ops), group_(group), table_(std::move(table)), first_id_(first_id) {}

  Ops& ops_;
  Collectives* group_;
  DeviceTensor table_;     // [ceil(vocab / ranks), hidden] as stored
  std::int64_t first_id_;  // of this rank's rows
};

}  // namespace troupe
