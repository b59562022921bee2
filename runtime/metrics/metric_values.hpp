#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace troupe {

/// The counts of values in each bucket, and their sum. Callable from any thread; observe takes no
/// lock, so a reader may see a value in a bucket and not yet in the sum.
class HistogramBuckets {
 public:
  /// `bounds`: upper bounds, inclusive and ascending; a bucket above the last one is added.
  explicit HistogramBuckets(std::span<const double> bounds)
      : bounds_(bounds.begin(), bounds.end()), counts_(bounds.size() + 1) {}

  void observe(double value) noexcept {
    const auto place = std::ranges::lower_bound(bounds_, value);
    counts_[static_cast<std::size_t>(place - bounds_.begin())].fetch_add(1,
                                                                         std::memory_order_relaxed);
    sum_.fetch_add(value, std::memory_order_relaxed);
  }

  std::span<const double> bounds() const { return bounds_; }
  /// The count of values in bucket `i`, at most bounds().size().
  std::uint64_t in_bucket(std::size_t i) const {
    return counts_[i].load(std::memory_order_relaxed);
  }
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  const std::vector<double> bounds_;
  std::vector<std::atomic<std::uint64_t>> counts_;
  std::atomic<double> sum_ = 0;
};

// What an actor or a driver holds of its metrics, made by MetricsRegistry. Each refers to one
// series: copies count together. O(1), without locks, callable from any thread; they may outlive
// the registry. One that was made by default, or refused by the registry, counts nothing.

/// A number that only grows: what has happened so far.
class Counter {
 public:
  Counter() = default;
  explicit Counter(std::shared_ptr<std::atomic<double>> value) : value_(std::move(value)) {}

  /// Adds an amount; one below 0 is ignored.
  void add(double amount = 1) const noexcept {
    if (value_ && amount > 0) value_->fetch_add(amount, std::memory_order_relaxed);
  }
  double value() const { return value_ ? value_->load(std::memory_order_relaxed) : 0; }

 private:
  std::shared_ptr<std::atomic<double>> value_;
};

/// A number that goes up and down: how much there is now. `troupe metrics` adds those of all
/// processes; a label that names the process or actor keeps them apart.
class Gauge {
 public:
  Gauge() = default;
  explicit Gauge(std::shared_ptr<std::atomic<double>> value) : value_(std::move(value)) {}

  void set(double value) const noexcept {
    if (value_) value_->store(value, std::memory_order_relaxed);
  }
  void add(double amount = 1) const noexcept {
    if (value_) value_->fetch_add(amount, std::memory_order_relaxed);
  }
  void subtract(double amount = 1) const noexcept { add(-amount); }
  double value() const { return value_ ? value_->load(std::memory_order_relaxed) : 0; }

 private:
  std::shared_ptr<std::atomic<double>> value_;
};

/// How often values were in each of some ranges, such as the seconds that requests took. O(log) of
/// the buckets.
class Histogram {
 public:
  Histogram() = default;
  explicit Histogram(std::shared_ptr<HistogramBuckets> buckets) : buckets_(std::move(buckets)) {}

  void observe(double value) const noexcept {
    if (buckets_) buckets_->observe(value);
  }

 private:
  std::shared_ptr<HistogramBuckets> buckets_;
};

}  // namespace troupe
