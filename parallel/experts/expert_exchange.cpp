#include "parallel/experts/expert_exchange.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace troupe {

namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

std::int64_t ExpertLayout::max_received_rows() const {
  return max_tokens * expert_ranks * parts * std::min(top_k, local_experts());
}

ExpertExchange::ExpertExchange(Collectives& host, Collectives& device, const ExpertLayout& layout)
    : host_(&host),
      device_(&device),
      layout_(layout),
      expert_begin_(index(layout.experts) + 1),
      sent_tokens_(DType::i32, {layout.max_sent_rows()}),
      rows_of_assignments_(DType::i32, {layout.max_tokens * layout.top_k}),
      sent_counts_(DType::i32, {host.size(), layout.local_experts()}),
      received_counts_(DType::i32, {host.size(), layout.local_experts()}),
      offsets_(DType::i32, {layout.local_experts() + 1}),
      sorted_rows_(DType::i32, {layout.max_received_rows()}),
      one_row_(index(host.size()), 1),
      rows_to_(index(host.size())),
      rows_from_(index(host.size())) {}

Result<ExpertExchange> ExpertExchange::create(Collectives& host, Collectives& device,
                                              const ExpertLayout& layout) {
  assert(layout.experts % layout.expert_ranks == 0 && layout.top_k <= layout.experts);
  if (host.size() != layout.expert_ranks * layout.parts) {
    return fail(ErrorCode::invalid_argument,
                "experts in {} parts over {} ranks each need a group of {} ranks, found {}",
                layout.parts, layout.expert_ranks, layout.parts * layout.expert_ranks, host.size());
  }
  return ExpertExchange(host, device, layout);
}

Result<void> ExpertExchange::plan(const Tensor& ids) {
  if (ids[0] > layout_.max_tokens) {
    return fail(ErrorCode::invalid_argument, "an exchange of {} tokens; this one takes {}", ids[0],
                layout_.max_tokens);
  }
  assignments_ = ids[0] * layout_.top_k;
  sent_rows_ = assignments_ * layout_.parts;
  TROUPE_CHECK(sort_assignments(std::span(ids.as<std::int32_t>(), index(assignments_))));
  count_sent();
  TROUPE_CHECK(host_->all_to_all(sent_counts_, one_row_, received_counts_, one_row_));
  TROUPE_CHECK(count_received());
  sort_received();
  return {};
}

Result<void> ExpertExchange::sort_assignments(std::span<const std::int32_t> ids) {
  std::ranges::fill(expert_begin_, 0);
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= layout_.experts) {
      return fail(ErrorCode::invalid_argument, "expert {} of {}", id, layout_.experts);
    }
    ++expert_begin_[index(id) + 1];
  }
  std::partial_sum(expert_begin_.begin(), expert_begin_.end(), expert_begin_.begin());
  // expert_begin_[e] is expert e's cursor and ends where e + 1 begins; a shift restores it.
  auto* const tokens = sent_tokens_->as<std::int32_t>();
  auto* const rows = rows_of_assignments_->as<std::int32_t>();
  for (std::int64_t pair = 0; pair < assignments_; ++pair) {
    const std::int32_t row = expert_begin_[index(ids[index(pair)])]++;
    rows[pair] = row;
    tokens[row] = static_cast<std::int32_t>(pair / layout_.top_k);
  }
  std::shift_right(expert_begin_.begin(), expert_begin_.end(), 1);
  expert_begin_.front() = 0;
  for (int part = 1; part < layout_.parts; ++part) {
    std::copy_n(tokens, assignments_, tokens + part * assignments_);
  }
  return {};
}

void ExpertExchange::count_sent() {
  const std::int64_t local = layout_.local_experts();
  auto* const counts = sent_counts_->as<std::int32_t>();
  for (int rank = 0; rank < host_->size(); ++rank) {
    const std::int64_t first = rank % layout_.expert_ranks * local;
    rows_to_[index(rank)] = expert_begin_[index(first + local)] - expert_begin_[index(first)];
    for (std::int64_t e = 0; e < local; ++e) {
      counts[rank * local + e] =
          expert_begin_[index(first + e + 1)] - expert_begin_[index(first + e)];
    }
  }
}

Result<void> ExpertExchange::count_received() {
  const std::int64_t local = layout_.local_experts();
  const std::int64_t most = layout_.max_tokens * std::min(layout_.top_k, local);
  received_rows_ = 0;
  for (int rank = 0; rank < host_->size(); ++rank) {
    const auto counts = received_counts_->rows(rank, 1).span<std::int32_t>();
    const std::int64_t rows = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    if (rows > most || std::ranges::any_of(counts, [](std::int32_t n) { return n < 0; })) {
      host_->abort();
      return fail(ErrorCode::invalid_argument,
                  "rank {} of the experts' group announces {} rows, of at most {}: do all ranks "
                  "have the same limits?",
                  rank, rows, most);
    }
    rows_from_[index(rank)] = rows;
    received_rows_ += rows;
  }
  return {};
}

void ExpertExchange::sort_received() {
  const std::int64_t local = layout_.local_experts();
  const auto* const counts = received_counts_->as<std::int32_t>();
  auto* const offsets = offsets_->as<std::int32_t>();
  auto* const sorted = sorted_rows_->as<std::int32_t>();
  std::int32_t at = 0;
  for (std::int64_t e = 0; e < local; ++e) {
    offsets[e] = at;
    std::int32_t row = 0;  // of the received rows, which are ordered by sender, then expert
    for (int rank = 0; rank < host_->size(); ++rank) {
      const std::int32_t* const of_rank = counts + rank * local;
      std::iota(sorted + at, sorted + at + of_rank[e], std::accumulate(of_rank, of_rank + e, row));
      at += of_rank[e];
      row += static_cast<std::int32_t>(rows_from_[index(rank)]);
    }
  }
  offsets[local] = at;
}

Result<void> ExpertExchange::dispatch(const Tensor& rows, const Tensor& received) {
  return device_->all_to_all(rows, rows_to_, received, rows_from_);
}

Result<void> ExpertExchange::combine(const Tensor& results, const Tensor& returned) {
  return device_->all_to_all(results, rows_from_, returned, rows_to_);
}

}  // namespace troupe
