#include "actors/telemetry/distribution_sketch.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace troupe {
namespace {

/// Below 32 each value has its own bucket; above, each power of two has 32.
constexpr unsigned precision_bits = 5;
constexpr std::uint64_t per_octave = 1U << precision_bits;
constexpr std::uint64_t largest = std::uint64_t{1} << 48;

std::size_t bucket_of(std::uint64_t us) {
  us = std::min(us, largest - 1);
  if (us < per_octave) return static_cast<std::size_t>(us);
  const auto shift = static_cast<unsigned>(std::bit_width(us)) - precision_bits - 1;
  return static_cast<std::size_t>((std::uint64_t{shift} << precision_bits) + (us >> shift));
}

/// The smallest value of a bucket.
double edge(std::size_t bucket) {
  if (bucket < per_octave) return static_cast<double>(bucket);
  const std::size_t shift = (bucket >> precision_bits) - 1;
  return std::ldexp(static_cast<double>((bucket & (per_octave - 1)) + per_octave),
                    static_cast<int>(shift));
}

}  // namespace

void DistributionSketch::add(std::uint64_t us, std::uint64_t times) {
  if (times == 0) return;
  const bool keep =
      exact() && us <= std::numeric_limits<std::uint32_t>::max() && count_ + times <= exact_limit;
  if (keep) {
    values_.insert(values_.end(), static_cast<std::size_t>(times), static_cast<std::uint32_t>(us));
  } else {
    values_ = {};
  }
  const std::size_t bucket = bucket_of(us);
  if (buckets_.size() <= bucket) buckets_.resize(bucket + 1);
  buckets_[bucket] += times;
  least_ = count_ == 0 ? us : std::min(least_, us);
  most_ = std::max(most_, us);
  count_ += times;
  sum_ += static_cast<double>(us) * static_cast<double>(times);
}

void DistributionSketch::add(const DistributionSketch& other) {
  if (other.count_ == 0) return;
  if (exact() && other.exact() && count_ + other.count_ <= exact_limit) {
    values_.insert(values_.end(), other.values_.begin(), other.values_.end());
  } else {
    values_ = {};
  }
  if (buckets_.size() < other.buckets_.size()) buckets_.resize(other.buckets_.size());
  for (std::size_t i = 0; i < other.buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
  least_ = count_ == 0 ? other.least_ : std::min(least_, other.least_);
  most_ = std::max(most_, other.most_);
  count_ += other.count_;
  sum_ += other.sum_;
}

double DistributionSketch::mean_us() const {
  return count_ == 0 ? 0 : sum_ / static_cast<double>(count_);
}

std::uint64_t DistributionSketch::min_us() const { return count_ == 0 ? 0 : least_; }

double DistributionSketch::quantile_us(double q) const {
  if (count_ == 0) return 0;
  const double place = std::clamp(q, 0.0, 1.0) * static_cast<double>(count_ - 1);
  if (exact()) {
    std::vector<std::uint32_t> sorted = values_;
    const auto below = static_cast<std::ptrdiff_t>(place);
    const auto at = sorted.begin() + below;
    std::nth_element(sorted.begin(), at, sorted.end());
    const double low = *at;
    if (at + 1 == sorted.end()) return low;
    const double high = *std::min_element(at + 1, sorted.end());
    return low + (place - static_cast<double>(below)) * (high - low);
  }
  double before = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const auto here = static_cast<double>(buckets_[i]);
    if (here > 0 && place < before + here) {
      const double value = edge(i) + (place - before) / here * (edge(i + 1) - edge(i));
      return std::clamp(value, static_cast<double>(least_), static_cast<double>(most_));
    }
    before += here;
  }
  return static_cast<double>(most_);
}

std::vector<DistributionSketch::Bin> DistributionSketch::bins(std::size_t most) const {
  if (count_ == 0 || most == 0) return {};
  const double low = std::max(1.0, static_cast<double>(least_));
  const double high = std::max(low * 1.0001, static_cast<double>(most_));
  const double octaves = std::log2(high / low);
  // The edges of buckets narrower than two values would show; the other rule is Rice's.
  const auto wanted = static_cast<std::size_t>(exact() ? 2 * std::cbrt(static_cast<double>(count_))
                                                       : octaves * per_octave / 2);
  const std::size_t count = std::clamp<std::size_t>(wanted, 1, most);
  const double factor = octaves / static_cast<double>(count);
  std::vector<Bin> bins(count);
  for (std::size_t i = 0; i < count; ++i) {
    bins[i].from_us = low * std::exp2(factor * static_cast<double>(i));
    bins[i].to_us = low * std::exp2(factor * static_cast<double>(i + 1));
  }
  const auto put = [&](double us, std::uint64_t times) {
    const double place = std::log2(std::clamp(us, low, high) / low) / factor;
    bins[std::min(static_cast<std::size_t>(place), count - 1)].count += times;
  };
  if (exact()) {
    for (const std::uint32_t us : values_) put(us, 1);
  } else {
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      if (buckets_[i] > 0) put((edge(i) + edge(i + 1)) / 2, buckets_[i]);
    }
  }
  return bins;
}

}  // namespace troupe
