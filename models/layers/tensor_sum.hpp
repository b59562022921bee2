#pragma once

#include "parallel/collectives/collectives.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Lets `compute(partial)` write this rank's partial sums [rows, width] f32 and leaves the sum over
/// the ranks of `group`, in tree order, in `sum` (the same shape). On one rank (null) the partial
/// is the sum. Errors: those of Collectives.
template <class Compute>
Result<void> sum_over_ranks(Collectives* group, const Tensor& sum, Compute&& compute) {
  if (group == nullptr || sum.empty()) {
    compute(sum);
    return {};
  }
  Tensor partial = group->staging(DType::f32, sum.shape());
  if (partial.data() == nullptr) partial = sum;
  compute(partial);
  return group->all_reduce_tree(partial, sum);
}

}  // namespace troupe
