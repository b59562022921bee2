#pragma once

#include "models/ops/attention_ops.hpp"

namespace troupe {

/// The rows of a pass that need logits, where the last layer computes no others: it stores the keys
/// and values of all rows, but only these attend and go through the MLP or the experts. A row's
/// arithmetic is the same.
struct HeadRows {
  Tensor rows;  ///< [n] i32 of the pass; n may be 0
  /// These rows as sequences of one row each, planned; unset if there are none.
  AttentionBatch attention;

  std::int64_t count() const { return rows.elements(); }
};

}  // namespace troupe
