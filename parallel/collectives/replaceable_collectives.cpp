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
    received_codes_ = inner_->received_codes();
    received_scales_ = inner_->received_scales();
    received_ids_ = inner_->received_ids();
    received_counts_ = inner_->received_counts();
    takes_codes_ = inner_->takes_codes();
  }

  Result<void> dispatch(const Tensor& x, const Tensor& scales, const Tensor& ids,
                        const Tensor& weights) override {
    inner_->expect(expected_rows());
    return inner_->dispatch(x, scales, ids, weights);
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
    : ForwardingCollectives(std::move(inner)),
      rank_(this->inner().rank()),
      size_(this->inner().size()) {
  Collectives::set_timeout(this->inner().timeout());
}

void ReplaceableCollectives::release() {
  if (has_inner()) inner().abort();  // memory is freed only when no kernel waits in it
  for (const Opening& opening : openings_) opening.release();
  set_inner(nullptr);
}

void ReplaceableCollectives::replace(std::shared_ptr<Collectives> inner) {
  assert(inner->rank() == rank_ && inner->size() == size_);
  set_inner(std::move(inner));
  this->inner().set_timeout(timeout());
}

Result<void> ReplaceableCollectives::reopen() {
  for (const Opening& opening : openings_) TROUPE_CHECK(opening.reopen(inner()));
  return {};
}

template <class Replaceable, class Open>
Result<std::unique_ptr<typename Replaceable::Inner>> ReplaceableCollectives::open_replaceable(
    Open open) {
  TROUPE_TRY(auto first, open(inner()));
  std::unique_ptr<Replaceable> opened;
  if (first) opened = std::make_unique<Replaceable>(std::move(first));
  openings_.push_back({.release =
                           [of = opened.get()] {
                             if (of != nullptr) of->set_inner(nullptr);
                           },
                       .reopen = [of = opened.get(), open](Collectives& anew) -> Result<void> {
                         TROUPE_TRY(auto again, open(anew));
                         return set_reopened(of, std::move(again));
                       }});
  return std::unique_ptr<typename Replaceable::Inner>(std::move(opened));
}

Result<std::unique_ptr<OverlappedAllReduce>> ReplaceableCollectives::open_overlapped_all_reduce(
    DType dtype, std::int64_t max_rows, std::int64_t width) {
  return open_replaceable<ReplaceableOverlappedAllReduce>(
      [=](Collectives& of) { return of.open_overlapped_all_reduce(dtype, max_rows, width); });
}

Result<std::unique_ptr<DeviceExpertExchange>> ReplaceableCollectives::open_expert_exchange(
    const DeviceExpertExchangeLayout& layout) {
  return open_replaceable<ReplaceableExpertExchange>(
      [layout](Collectives& of) { return of.open_expert_exchange(layout); });
}

void ReplaceableCollectives::set_timeout(std::chrono::milliseconds timeout) {
  Collectives::set_timeout(timeout);
  inner().set_timeout(timeout);
}

}  // namespace troupe
