#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe {

/// Many measurements of one quantity, in microseconds, in bounded memory: exact up to `exact_limit`
/// of them, then in logarithmic buckets whose edges differ by a 32nd of a power of two (about 3 %,
/// as in HdrHistogram). A value; one thread at a time.
class DistributionSketch {
 public:
  static constexpr std::size_t exact_limit = std::size_t{1} << 16;

  /// Adds `times` measurements of `us`.
  void add(std::uint64_t us, std::uint64_t times = 1);
  void add(const DistributionSketch& other);

  std::uint64_t count() const { return count_; }
  bool exact() const { return values_.size() == count_; }
  double mean_us() const;        ///< exact; 0 without values
  std::uint64_t min_us() const;  ///< exact; 0 without values
  std::uint64_t max_us() const { return most_; }
  /// Returns the value that the share `q` (0..1) of the measurements do not exceed, interpolated
  /// between neighbours like distribution_of; in buckets, by their edges. 0 without values.
  double quantile_us(double q) const;

  struct Bin {
    double from_us = 0;
    double to_us = 0;
    std::uint64_t count = 0;
  };
  /// Returns the measurements in at most `most` adjacent bins, from the smallest to the largest,
  /// whose widths grow by a constant factor.
  std::vector<Bin> bins(std::size_t most) const;

  template <class Archive>
  void fields(Archive& archive) {
    archive(values_, buckets_, count_, sum_, least_, most_);
  }

 private:
  std::vector<std::uint32_t> values_;   ///< while exact; larger values are counted in the buckets
                                        ///< alone
  std::vector<std::uint64_t> buckets_;  ///< counts of all values, up to the last bucket that is not
                                        ///< empty
  std::uint64_t count_ = 0;
  double sum_ = 0;
  std::uint64_t least_ = 0;
  std::uint64_t most_ = 0;
};

}  // namespace troupe
