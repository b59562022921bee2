#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "actors/telemetry/step_record.hpp"

namespace troupe {

/// A job's steps over time, in bounded memory: buckets of equal width, which doubles whenever there
/// are more than `max_buckets` of them. A step is spread evenly over the time from the previous
/// result, or from its own plan if that is later, to its result; tokens are whole and their sums
/// exact. One thread at a time.
class StepSeries {
 public:
  static constexpr std::size_t max_buckets = 2000;
  static constexpr std::int64_t first_width_us = 10'000;

  /// Sets time 0 of the points, on the records' clock; earlier times count as 0. For a resumed
  /// series, time 0 is as long before the next record as the series has lasted.
  void begin_at(std::int64_t begin_us) { begin_us_ = begin_us; }

  /// Adds a record of step domain `domain`; records of one domain must be in order.
  void add(std::size_t domain, const StepRecord& record);

  /// An interval. `running`, `waiting` and `kv_use` are means over the time with steps, summed over
  /// the domains (kv_use: their mean); 0 without steps.
  struct Point {
    double seconds = 0;  ///< its beginning
    double width = 0;    ///< seconds
    std::uint64_t steps = 0;
    std::uint64_t prompt_tokens = 0;
    std::uint64_t prefix_tokens = 0;
    std::uint64_t output_tokens = 0;
    double running = 0;
    double waiting = 0;
    double kv_use = 0;
    double max_kv_use = 0;  ///< of one domain in one step
  };
  /// Returns the time from 0 to the last record as at most `most` points of equal width.
  std::vector<Point> points(std::size_t most) const;

  /// The largest kv_use of a step of any domain.
  double peak_kv_use() const { return peak_kv_use_; }

  template <class Archive>
  void fields(Archive& archive) {
    archive(begin_us_, width_us_, domains_, peak_kv_use_);
  }

 private:
  struct Bucket {
    std::uint64_t steps = 0;
    std::uint64_t prompt_tokens = 0;
    std::uint64_t prefix_tokens = 0;
    std::uint64_t output_tokens = 0;
    double weight = 0;  ///< microseconds in steps; the next three are sums over them
    double running = 0;
    double waiting = 0;
    double kv_use = 0;
    double max_kv_use = 0;

    void add(const Bucket& other);

    template <class Archive>
    void fields(Archive& archive) {
      archive(steps, prompt_tokens, prefix_tokens, output_tokens, weight, running, waiting, kv_use,
              max_kv_use);
    }
  };
  struct Domain {
    std::vector<Bucket> buckets;
    std::int64_t answered_us = 0;  ///< when the last step ended, from time 0 on

    template <class Archive>
    void fields(Archive& archive) {
      archive(buckets, answered_us);
    }
  };
  void halve();

  std::int64_t begin_us_ = 0;
  std::int64_t width_us_ = first_width_us;
  std::vector<Domain> domains_;
  double peak_kv_use_ = 0;
};

}  // namespace troupe
