#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe {

/// Many measurements of one thing, in microseconds, in bounded memory: exact up to `exact_limit` of
/// them, from then on in logarithmic buckets whose edges differ by a 32nd of a power of two (about
/// 3 %, as in HdrHistogram). A value; one thread at a time.
class DistributionSketch {
 public:
  static constexpr std::size_t exact_limit = std::size_t{1} << 16;

  /// `times` measurements of `us`.
  void add(std::uint64_t us, std::uint64_t times = 1);
  void add(const DistributionSketch& other);

  std::uint64_t count() const { return count_; }
  bool exact() const { return values_.size() == count_; }
  double mean_us() const;        ///< exact; 0 without values
  std::uint64_t min_us() const;  ///< exact; 0 without values
  std::uint64_t max_us() const { return most_; }
  /// The value that the share `q` (0..1) of the measurements do not exceed, interpolated between
  /// neighbours as distribution_of does; in buckets, by their edges. 0 without values.
  double quantile_us(double q) const;

  struct Bin {
    double from_us = 0;
    double to_us = 0;
    std::uint64_t count = 0;
  };
  /// The measurements in at most `most` bins side by side, each as wide by the same factor, from
  /// the least to the largest.
  std::vector<Bin> bins(std::size_t most) const;

  template <class Archive>
  void fields(Archive& archive) {
    archive(values_, buckets_, count_, sum_, least_, most_);
  }

 private:
  std::vector<std::uint32_t> values_;   ///< while exact; a larger one counts in the buckets alone
  std::vector<std::uint64_t> buckets_;  ///< of all, up to the last that is not empty
  std::uint64_t count_ = 0;
  double sum_ = 0;
  std::uint64_t least_ = 0;
  std::uint64_t most_ = 0;
};

}  // namespace troupe
