#pragma once

#include <vector>

#include "models/layers/hidden_state.hpp"
#include "models/layers/layer_context.hpp"

namespace troupe {

/// The final norm and the projection to logits, of chosen rows only. The vocabulary is split over
/// the tensor ranks; every rank ends up with all of it.
class Head {
 public:
  static Result<Head> create(const LayerContext& context);

  /// logits[i] = head(norm(hidden of token rows[i])). rows [n] i32 of the pass's `tokens`,
  /// n <= max_head_rows; logits [n, vocab] f32. Errors: those of Collectives.
  Result<void> forward(HiddenState& hidden, std::int64_t tokens, const Tensor& rows,
                       const Tensor& logits);
  std::size_t bytes() const { return norm_->bytes() + weight_->bytes(); }

 private:
  explicit Head(const LayerContext& context);

  Result<void> gather_logits(const Tensor& local, const Tensor& logits);

  Ops& ops_;
  TensorGroup& tokens_;
  Collectives* group_;  // null on one rank
  Workspace& space_;
  float norm_eps_;
  DeviceTensor norm_;                        // [hidden] f32
  std::unique_ptr<Linear> weight_;           // [ceil(vocab / ranks), hidden]
  std::vector<std::int64_t> rows_per_rank_;  // of the gather; equal on all ranks
};

}  // namespace troupe
