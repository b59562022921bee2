#pragma once

#include "models/layers/parallel/pending_sum.hpp"
#include "models/ops/ops.hpp"

namespace troupe {

/// The residual stream between two blocks. The last block's output is kept apart until the next
/// norm, which adds and normalises in one pass over the memory. "tokens" are those of the pass that
/// this rank owns (TensorGroup::own_row_count).
struct HiddenState {
  Tensor residual;          ///< [tokens, hidden] activation
  Tensor update;            ///< [tokens, hidden] activation or f32: to be added to residual
  bool has_update = false;  ///< false only before the first block
  PendingSum sum = {};      ///< while pending, `update` is not written yet

  std::int64_t tokens() const { return residual[0]; }
};

}  // namespace troupe
