#include "parallel/collectives/replaceable_collectives.hpp"

#include <cassert>
#include <utility>

namespace troupe {
namespace {

/// An expert exchange whose inner one can be replaced.
class ReplaceableExpertExchange final : public DeviceExpertExchange {
 public:
  using Inner = DeviceExpertExchange;

  explicit ReplaceableExpertExchange(std::unique_ptr<Inner> inner)
      : DeviceExpertExchange(inner->layout()) {
    set_inner(std::move(inner));
  }

  void set_inner(std::unique_ptr<Inner> inner) {
    inner_ = std::move(inner);
    if (inner_ == nullptr) return;
    received_ = inner_->received();
    received_ids_ = inner_->received_ids();
    received_counts_ = inner_->received_counts();
  }

  Result<void> dispatch(const Tensor& x, const Tensor& ids, const Tensor& weights) override {
    inner_->expect(expected_rows());
    return inner_->dispatch(x, ids, weights);
  }
  Result<void> combine(const Tensor& results, const Tensor& out) override {
    return inner_->combine(results, out);
  }

 private:
  std::unique_ptr<Inner> inner_;
};

/// Overlapped all-reduces whose inner ones can be replaced.
class ReplaceableOverlappedAllReduce final : public OverlappedAllReduce {
 public:
  using Inner = OverlappedAllReduce;

  explicit ReplaceableOverlappedAllReduce(std::unique_ptr<Inner> inner) {
    set_least_rows(inner->min_rows());
    set_inner(std::move(inner));
  }

  void set_inner(std::unique_ptr<Inner> inner) {
    inner_ = std::move(inner);
    if (inner_ != nullptr) normed_ = inner_->normed();
  }

  Result<void> begin(int part, const Tensor& partial) override {
    return inner_->begin(part, partial);
  }
  Result<void> norm(int part, const AllReduceRmsNorm& sum) override {
    return inner_->norm(part, sum);
  }
  Result<void> await(int part) override { return inner_->await(part); }

 private:
  std::unique_ptr<Inner> inner_;
};

/// Gives `replaced`, null if the ranks could not open it at first, what has been opened anew.
template <class Replaceable>
Result<void> set_reopened(Replaceable* replaced,
                          std::unique_ptr<typename Replaceable::Inner> reopened) {
  if ((replaced == nullptr) != (reopened == nullptr)) {
    return fail(ErrorCode::unsupported,
                "the ranks' devices do not reach each other's memory as they did before");
  }
  if (replaced != nullptr) replaced->set_inner(std::move(reopened));
  return {};
}

}  // namespace

ReplaceableCollectives::ReplaceableCollectives(std::shared_ptr<Collectives> inner)
    : inner_(std::move(inner)), rank_(inner_->rank()), size_(inner_->size()) {
  Collectives::set_timeout(inner_->timeout());
}

void ReplaceableCollectives::release() {
  if (inner_) inner_->abort();  // memory is freed only when no kernel waits in it
  for (const Opening& opening : openings_) opening.release();
  inner_.reset();
}

void ReplaceableCollectives::replace(std::shared_ptr<Collectives> inner) {
  assert(inner->rank() == rank_ && inner->size() == size_);
  inner_ = std::move(inner);
  inner_->set_timeout(timeout());
}

Result<void> ReplaceableCollectives::reopen() {
  for (const Opening& opening : openings_) TROUPE_CHECK(opening.reopen(*inner_));
  return {};
}

Result<std::unique_ptr<OverlappedAllReduce>> ReplaceableCollectives::open_overlapped_all_reduce(
    DType dtype, std::int64_t max_rows, std::int64_t width) {
  TROUPE_TRY(auto inner, inner_->open_overlapped_all_reduce(dtype, max_rows, width));
  std::unique_ptr<ReplaceableOverlappedAllReduce> opened;
  if (inner) opened = std::make_unique<ReplaceableOverlappedAllReduce>(std::move(inner));
  openings_.push_back(
      {.release =
           [of = opened.get()] {
             if (of != nullptr) of->set_inner(nullptr);
           },
       .reopen = [of = opened.get(), dtype, max_rows, width](Collectives& anew) -> Result<void> {
         TROUPE_TRY(auto again, anew.open_overlapped_all_reduce(dtype, max_rows, width));
         return set_reopened(of, std::move(again));
       }});
  return std::unique_ptr<OverlappedAllReduce>(std::move(opened));
}

Result<std::unique_ptr<DeviceExpertExchange>> ReplaceableCollectives::open_expert_exchange(
    const DeviceExpertExchangeLayout& layout) {
  TROUPE_TRY(auto inner, inner_->open_expert_exchange(layout));
  std::unique_ptr<ReplaceableExpertExchange> opened;
  if (inner) opened = std::make_unique<ReplaceableExpertExchange>(std::move(inner));
  openings_.push_back({.release =
                           [of = opened.get()] {
                             if (of != nullptr) of->set_inner(nullptr);
                           },
                       .reopen = [of = opened.get(), layout](Collectives& anew) -> Result<void> {
                         TROUPE_TRY(auto again, anew.open_expert_exchange(layout));
                         return set_reopened(of, std::move(again));
                       }});
  return std::unique_ptr<DeviceExpertExchange>(std::move(opened));
}

void ReplaceableCollectives::set_timeout(std::chrono::milliseconds timeout) {
  Collectives::set_timeout(timeout);
  inner_->set_timeout(timeout);
}

}  // namespace troupe
