#include "models/layers/parallel/context_group.hpp"

#include <numeric>

namespace troupe {

Result<ContextGroup> ContextGroup::create(Collectives* collectives, const AttentionShape& shape,
                                          bool shares_heads, const ModelLimits& limits, Ops& ops) {
  ContextGroup group(collectives, shape, shares_heads, ops);
  if (collectives == nullptr) return group;
  const std::int64_t width = shares_heads ? (shape.heads + 2 * shape.kv_heads) * shape.head_dim
                                          : shape.stored_elements(limits.kv_dtype);
  TROUPE_TRY(group.received_, ops.memory().allocate(shares_heads ? ops.activation_dtype()
                                                                 : shape.key_dtype(limits.kv_dtype),
                                                    {limits.max_batch_tokens, width}));
  return group;
}

void ContextGroup::begin_pass(std::int64_t rows, std::span<const std::int64_t> rows_per_rank) {
  rows_ = rows;
  own_ = {0, rows};
  rows_per_rank_ = {};
  own_rows_per_rank_.assign(static_cast<std::size_t>(size()), rows);
  if (collectives_ == nullptr || rows_per_rank.empty()) return;
  rows_per_rank_ = rows_per_rank;
  const auto rank = static_cast<std::size_t>(collectives_->rank());
  const auto before = rows_per_rank.first(rank);
  own_rows_per_rank_.assign(rows_per_rank.size(), rows_per_rank[rank]);
  own_ = {std::reduce(before.begin(), before.end(), std::int64_t{0}), rows_per_rank[rank]};
}

Result<void> ContextGroup::all_gather(const Tensor& all) {
  return collectives_->all_gather(all.rows(own_.begin, own_.count), all, rows_per_rank_);
}

Result<Tensor> ContextGroup::rows_to_heads(const Tensor& by_rank) {
  const Tensor own_heads = received_->rows(0, rows_);
  TROUPE_CHECK(collectives_->all_to_all(by_rank, own_rows_per_rank_, own_heads, rows_per_rank_));
  return own_heads;
}

Result<void> ContextGroup::heads_to_rows(const Tensor& own_heads, const Tensor& by_rank) {
  if (!divides()) return collectives_->all_gather(own_heads, by_rank, own_rows_per_rank_);
  return collectives_->all_to_all(own_heads, rows_per_rank_, by_rank, own_rows_per_rank_);
}

Result<void> ContextGroup::all_gather_kv(const Tensor& kv_slots, const KvLayer& cache) {
  const Tensor all = received_->rows(0, rows_);
  const auto slots = [&](Slice rows) { return kv_slots.rows(rows.begin, rows.count); };
  ops_->attention().gather_kv(cache, shape_, slots(own_), all.rows(own_.begin, own_.count));
  TROUPE_CHECK(all_gather(all));
  for (const Slice others : {Slice{0, own_.begin}, Slice{own_.end(), rows_ - own_.end()}}) {
    if (others.count == 0) continue;
    ops_->attention().scatter_kv(all.rows(others.begin, others.count), shape_, slots(others),
                                 cache);
  }
  return {};
}

}  // namespace troupe
