#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "actors/telemetry/step_record.hpp"

namespace troupe {

/// What a job's steps were over time, in bounded memory: buckets of equal width, which doubles
/// whenever there are more than `most_buckets` of them. Sums are exact; when they happened is known
/// to a bucket. One thread at a time.
class StepSeries {
 public:
  static constexpr std::size_t most_buckets = 2000;
  static constexpr std::int64_t first_width_us = 10'000;

  /// Time 0 of the points, on the records' clock; earlier records count as at 0.
  void begin_at(std::int64_t begin_us) { begin_us_ = begin_us; }

  /// A record of step domain `domain`; of one domain, in order.
  void add(std::size_t domain, const StepRecord& record);

  /// A stretch of time. `running`, `waiting` and `kv_use` are means over its steps, of all domains
  /// together (kv_use: of their mean); where a domain has none because a step was longer, as
  /// before.
  struct Point {
    double seconds = 0;  ///< when it begins
    double width = 0;    ///< seconds
    std::uint64_t steps = 0;
    std::uint64_t prompt_tokens = 0;
    std::uint64_t prefix_tokens = 0;
    std::uint64_t output_tokens = 0;
    double running = 0;
    double waiting = 0;
    double kv_use = 0;
    double most_kv_use = 0;  ///< of one domain in one step
  };
  /// From 0 to the last record in at most `most` points of equal width, with two steps or more in
  /// each on average.
  std::vector<Point> points(std::size_t most) const;

  /// The largest kv_use of a step of any domain.
  double peak_kv_use() const;

 private:
  using Buckets = std::vector<StepRecord>;  ///< without steps: empty
  void halve();
  std::size_t length() const;

  std::int64_t begin_us_ = 0;
  std::int64_t width_us_ = first_width_us;
  std::vector<Buckets> domains_;
};

}  // namespace troupe
