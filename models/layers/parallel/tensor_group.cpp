#include "models/layers/parallel/tensor_group.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "models/layers/norm.hpp"

namespace troupe {

TensorGroup::TensorGroup(Collectives* collectives, bool sequence_parallel, DType partial_dtype)
    : collectives_(collectives),
      sequence_parallel_(sequence_parallel && collectives != nullptr),
      partial_dtype_(partial_dtype),
      rows_per_rank_(static_cast<std::size_t>(collectives == nullptr ? 1 : collectives->size())) {}

Result<TensorGroup> TensorGroup::create(Collectives* collectives, bool sequence_parallel,
                                        std::int64_t max_elements, std::int64_t hidden,
                                        bool own_rows_are_all, DType partial_dtype, Ops& ops,
                                        bool fuses_norms) {
  TensorGroup group(collectives, sequence_parallel, partial_dtype);
  group.hidden_ = hidden;
  group.leaves_sums_ = fuses_norms && collectives != nullptr &&
                       collectives->can_all_reduce_rms_norm(group.partial_dtype_, hidden);
  group.may_divide_ = group.leaves_sums_ && !own_rows_are_all;
  const bool in_place = group.sums_exactly() && ops.activation_dtype() == partial_dtype;
  if (group.sequence_parallel_ || group.leaves_sums_ || !in_place) {
    // Not for padded outputs: behind a part there is another one, which may still be on its way.
    TROUPE_TRY(group.scratch_, ops.memory().allocate(group.partial_dtype_, {max_elements}));
  }
  return group;
}

Slice TensorGroup::token_slice(std::int64_t tokens) const {
  if (collectives_ == nullptr) return {0, tokens};
  return ceil_slice(tokens, {collectives_->rank(), collectives_->size()});
}

std::vector<Slice> TensorGroup::parts(std::int64_t tokens) const {
  if (!in_parts(tokens)) return {{0, tokens}};
  std::vector<Slice> parts;
  for (int part = 0; part < OverlappedAllReduce::parts; ++part)
    parts.push_back(part_of(tokens, part));
  return parts;
}

bool TensorGroup::divides(std::int64_t tokens) const {
  return sequence_parallel_ ||
         (may_divide_ && collectives_->prefers_sharded_residual(partial_bytes(tokens)));
}

bool TensorGroup::leaves(std::int64_t tokens) const {
  // With an undivided stream, a large sum is faster by itself.
  return leaves_sums_ &&
         (divides(tokens) || !collectives_->prefers_sharded_residual(partial_bytes(tokens)));
}

std::int64_t TensorGroup::own_row_count(std::int64_t tokens) const {
  return in_parts(tokens) ? own_of(tokens, OverlappedAllReduce::parts - 1).end()
                          : own_slice(tokens).count;
}

Slice TensorGroup::own_slice(std::int64_t tokens) const {
  assert(!in_parts(tokens));
  return divides(tokens) ? token_slice(tokens) : Slice{0, tokens};
}

void TensorGroup::count_rows(std::int64_t tokens, std::int64_t rows_per_token) {
  for (int rank = 0; rank < size(); ++rank) {
    rows_per_rank_[static_cast<std::size_t>(rank)] =
        ceil_slice(tokens, {rank, size()}).count * rows_per_token;
  }
}

Result<void> TensorGroup::gather_tokens(const Tensor& all) {
  return divides(all[0]) ? gather_slices(all) : Result<void>();
}

Result<void> TensorGroup::gather_slices(const Tensor& all) {
  if (collectives_ == nullptr) return {};
  const Slice own = token_slice(all[0]);
  count_rows(all[0], 1);
  return collectives_->all_gather(all.rows(own.begin, own.count), all, rows_per_rank_);
}

Result<void> TensorGroup::sum(const Tensor& partial, std::int64_t rows_per_token,
                              const Tensor& own) {
  if (!divides(partial[0] / rows_per_token)) return collectives_->all_reduce_tree(partial, own);
  count_rows(partial[0] / rows_per_token, rows_per_token);
  return collectives_->reduce_scatter_tree(partial, own, rows_per_rank_);
}

Result<void> TensorGroup::complete(PendingSum pending, const Tensor& own) {
  return pending.is_pending() ? sum(pending.partial(), 1, own) : Result<void>();
}

Slice TensorGroup::own_of(std::int64_t tokens, int part) const {
  const Slice rows = part_of(tokens, part);
  return {rows.begin / size(), ceil_slice(rows.count, {collectives_->rank(), size()}).count};
}

Result<void> TensorGroup::await(int part) {
  const bool unseen = std::exchange(unseen_[static_cast<std::size_t>(part)], false);
  return unseen ? side_->await(part) : Result<void>();
}

Result<void> TensorGroup::await_rows() {
  for (int part = 0; part < OverlappedAllReduce::parts; ++part) TROUPE_CHECK(await(part));
  return {};
}

Result<void> TensorGroup::begin_parts(const Tensor& partial) {
  for (int part = 0; part < OverlappedAllReduce::parts; ++part) {
    const Slice rows = part_of(partial[0], part);
    TROUPE_CHECK(side_->begin(part, partial.rows(rows.begin, rows.count)));
  }
  return {};
}

Result<void> TensorGroup::norm_parts(HiddenState& hidden, const NormTo& to) {
  const PendingSum sum = std::move(hidden.sum);
  for (int part = 0; part < OverlappedAllReduce::parts; ++part) {
    const Slice rows = part_of(to.out[0], part);
    const Slice own = own_of(to.out[0], part);
    TROUPE_CHECK(side_->norm(part, {.partial = sum.partial().rows(rows.begin, rows.count),
                                    .residual = hidden.residual.rows(own.begin, own.count),
                                    .weight = to.norm.weight(),
                                    .eps = to.norm.eps(),
                                    .normed = to.out.rows(rows.begin, rows.count),
                                    .begins = sum.begins_,
                                    .divided = true}));
    unseen_[static_cast<std::size_t>(part)] = true;
  }
  return {};
}

Result<void> TensorGroup::add_and_norm(Ops& ops, HiddenState& hidden, const NormTo& to) {
  const std::int64_t tokens = to.out[0];
  const bool has_update = std::exchange(hidden.has_update, false);
  if (!hidden.sum.is_pending()) {
    const Slice own = own_slice(tokens);
    const Tensor out = to.out.rows(own.begin, own.count);
    const Linear* const next = divides(tokens) ? nullptr : to.next;
    if (has_update) {
      to.norm.add_and_apply(ops, hidden.residual, hidden.update, out, next);
    } else {
      to.norm.apply(ops, hidden.residual, out, next);
    }
    return to.of_all_rows ? gather_tokens(to.out) : Result<void>();
  }
  if (in_parts(tokens)) return norm_parts(hidden, to);
  const PendingSum sum = std::move(hidden.sum);
  return collectives_->all_reduce_rms_norm({.partial = sum.partial(),
                                            .residual = hidden.residual,
                                            .weight = to.norm.weight(),
                                            .eps = to.norm.eps(),
                                            .normed = to.out,
                                            .begins = sum.begins_,
                                            .divided = divides(tokens)});
}

Result<Tensor> TensorGroup::add_and_gather(Ops& ops, HiddenState& hidden, const Tensor& all) {
  // A sum that begins the residual stream is written to it.
  if (hidden.has_update) {
    TROUPE_CHECK(complete(hidden));
    ops.dense().add(hidden.residual, hidden.update);
    hidden.has_update = false;
  } else {
    TROUPE_CHECK(complete(std::move(hidden.sum), hidden.residual));
  }
  if (!divides(all[0])) return hidden.residual;
  count_rows(all[0], 1);
  TROUPE_CHECK(collectives_->all_gather(hidden.residual, all, rows_per_rank_));
  return all;
}

Result<void> TensorGroup::all_reduce_rms_norm(const Tensor& partial, const Tensor& residual,
                                              const NormTo& to) {
  return collectives_->all_reduce_rms_norm({.partial = partial,
                                            .residual = residual,
                                            .weight = to.norm.weight(),
                                            .eps = to.norm.eps(),
                                            .normed = to.out});
}

Result<void> TensorGroup::all_gather(const Tensor& own, const Tensor& all) {
  std::ranges::fill(rows_per_rank_, own[0]);
  return collectives_->all_gather(own, all, rows_per_rank_);
}

}  // namespace troupe
