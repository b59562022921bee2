#include "models/layers/parallel/dense_group.hpp"

#include <cassert>

namespace troupe {

Result<DenseGroup> DenseGroup::create(Collectives& collectives, TensorGroup& tensor,
                                      const ModelLimits& limits, std::int64_t hidden, Ops& ops) {
  const DType activation = ops.activation_dtype();
  const std::int64_t rows = std::max(limits.max_batch_tokens, limits.max_head_rows);
  DenseGroup group(collectives, tensor, limits.sum_dtype(activation), limits.max_batch_tokens);
  TROUPE_TRY(group.gathered_, ops.memory().allocate(activation, {rows, hidden}));
  TROUPE_TRY(group.partial_,
             ops.memory().allocate(group.partial_dtype_, {limits.max_batch_tokens, hidden}));
  group.rows_per_rank_.resize(static_cast<std::size_t>(collectives.size()));
  return group;
}

void DenseGroup::set_rows(std::span<const std::int64_t> rows_per_replica) {
  const int tensor_ranks = tensor_->size();
  assert(std::ssize(rows_per_replica) * tensor_ranks == size());
  const int own_replica = collectives_->rank() / tensor_ranks;
  ends_.clear();
  std::int64_t begin = 0;
  for (int replica = 0; const std::int64_t rows : rows_per_replica) {
    if (replica++ == own_replica) replica_begin_ = begin;
    for (int rank = 0; rank < tensor_ranks; ++rank) {
      ends_.push_back(begin + ceil_slice(rows, {rank, tensor_ranks}).end());
    }
    begin += rows;
  }
}

DenseGroup::Part DenseGroup::part(std::int64_t begin, std::int64_t most) {
  const std::int64_t end = std::min(begin + most, end_of_rank(size() - 1));
  Part part{.rows = end - begin, .rows_per_rank = rows_per_rank_};
  for (int rank = 0; rank < size(); ++rank) {
    const std::int64_t first = rank == 0 ? 0 : end_of_rank(rank - 1);
    const std::int64_t from = std::clamp(first, begin, end);
    const std::int64_t to = std::clamp(end_of_rank(rank), begin, end);
    rows_per_rank_[static_cast<std::size_t>(rank)] = to - from;
    if (rank != collectives_->rank()) continue;
    part.own = to > from ? Slice{from - replica_begin_, to - from} : Slice();
  }
  return part;
}

Result<Tensor> DenseGroup::gather(const Tensor& x, const Part& part) {
  const Shape shape = x.shape().rank() == 1 ? Shape{part.rows} : Shape{part.rows, x[1]};
  const Tensor all(gathered_->data(), x.dtype(), shape);
  TROUPE_CHECK(
      collectives_->all_gather(x.rows(part.own.begin, part.own.count), all, part.rows_per_rank));
  return all;
}

}  // namespace troupe
