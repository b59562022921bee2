#pragma once

#include <cstdint>

#include "parallel/device/tensor.hpp"

namespace troupe {

/// The lightning indexer of sparse attention (DeepSeek-AI 2025, DeepSeek-V3.2, section 2.1): a row
/// attends to the `top_k` keys with the largest scores
///   I(t, s) = sum over index heads j of w(t, j) * relu(q(t, j) . k(s)),
/// to all of them if it sees no more. All zero: a row attends to every key that it sees.
struct SparseIndex {
  std::int64_t heads = 0;
  std::int64_t dim = 0;  ///< of an index query's head and of a token's one index key
  std::int64_t top_k = 0;

  bool operator==(const SparseIndex&) const = default;
};

/// The rows' side of the scores; factors are in the weights.
struct IndexQueries {
  Tensor query;    ///< [tokens, index heads * dim] activation, rotated
  Tensor weights;  ///< [tokens, index heads] activation
};

}  // namespace troupe
