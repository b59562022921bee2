#include "models/layers/tensor_group.hpp"

namespace troupe {

TensorGroup::TensorGroup(Collectives* collectives, bool sequence_parallel, DType partial_dtype)
    : collectives_(collectives),
      sequence_parallel_(sequence_parallel && collectives != nullptr),
      partial_dtype_(partial_dtype),
      rows_per_rank_(static_cast<std::size_t>(collectives == nullptr ? 1 : collectives->size())) {}

Result<TensorGroup> TensorGroup::create(Collectives* collectives, bool sequence_parallel,
                                        std::int64_t max_elements, Ops& ops) {
  TensorGroup group(collectives, sequence_parallel, ops.activation_dtype());
  if (group.sequence_parallel_ || !group.sums_exactly()) {
    TROUPE_TRY(group.scratch_, ops.allocate(group.partial_dtype_, {max_elements}));
  }
  return group;
}

Slice TensorGroup::token_slice(std::int64_t tokens) const {
  if (collectives_ == nullptr) return {0, tokens};
  return ceil_slice(tokens, {collectives_->rank(), collectives_->size()});
}

Slice TensorGroup::own_tokens(std::int64_t tokens) const {
  return sequence_parallel_ ? token_slice(tokens) : Slice{0, tokens};
}

void TensorGroup::count_rows(std::int64_t tokens, std::int64_t rows_per_token) {
  for (int rank = 0; rank < size(); ++rank) {
    rows_per_rank_[static_cast<std::size_t>(rank)] =
        ceil_slice(tokens, {rank, size()}).count * rows_per_token;
  }
}

Result<void> TensorGroup::gather_tokens(const Tensor& all) {
  return sequence_parallel_ ? gather_slices(all) : Result<void>();
}

Result<void> TensorGroup::gather_slices(const Tensor& all) {
  if (collectives_ == nullptr) return {};
  const Slice own = token_slice(all[0]);
  count_rows(all[0], 1);
  return collectives_->all_gather(all.rows(own.begin, own.count), all, rows_per_rank_);
}

Result<void> TensorGroup::sum(const Tensor& partial, std::int64_t rows_per_token,
                              const Tensor& own) {
  if (!sequence_parallel_) return collectives_->all_reduce_tree(partial, own);
  count_rows(partial[0] / rows_per_token, rows_per_token);
  return collectives_->reduce_scatter_tree(partial, own, rows_per_rank_);
}

}  // namespace troupe
