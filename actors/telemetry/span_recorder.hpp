#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "actors/telemetry/span.hpp"

namespace troupe {

/// Records how one thread spends its time: totals of all spans, and the latest `capacity` spans
/// themselves. Memory is allocated at construction; recording a span costs two reads of the clock
/// and an uncontended lock (about 100 ns). record() is called by one thread, the other functions by
/// any.
class SpanRecorder {
 public:
  /// The number of spans kept per process: some seconds of a busy worker in 0.5 MB.
  static constexpr std::size_t default_capacity = std::size_t{1} << 14;

  /// Exchanges shorter than `shortest_exchange_ns` count in the totals but are not kept: a step has
  /// hundreds of them, of no interest.
  explicit SpanRecorder(std::size_t capacity = default_capacity,
                        std::int64_t shortest_exchange_ns = 20'000);

  /// Sets the step of the spans from now on.
  void set_step(std::uint64_t step) { step_ = step; }
  std::uint64_t step() const { return step_; }

  /// Records a span of the current step that has ended.
  void record(SpanKind kind, std::int64_t begin_ns, std::int64_t end_ns) {
    record({kind, step_, begin_ns, end_ns});
  }
  void record(const Span& span);

  SpanTotals totals() const;

  struct Kept {
    std::vector<Span> spans;  ///< in the order in which they ended
    bool all = true;          ///< false: older ones were overwritten
  };
  Kept spans() const;

 private:
  const std::size_t capacity_;
  const std::int64_t shortest_exchange_ns_;
  std::uint64_t step_ = 0;  ///< used by the recording thread only
  mutable std::mutex mutex_;
  SpanTotals totals_;
  std::vector<Span> ring_;
  std::size_t next_ = 0;  ///< where the next span goes once the ring is full
  bool overwritten_ = false;
};

/// Records the time from construction to destruction; nothing if there is no recorder.
class SpanScope {
 public:
  SpanScope(SpanRecorder* recorder, SpanKind kind)
      : recorder_(recorder),
        begin_ns_(recorder == nullptr ? 0 : monotonic_ns()),
        step_(recorder == nullptr ? 0 : recorder->step()),
        kind_(kind) {}
  SpanScope(const SpanScope&) = delete;
  SpanScope& operator=(const SpanScope&) = delete;
  ~SpanScope() { end(); }

  /// Ends the span early.
  void end() {
    if (recorder_ == nullptr) return;
    recorder_->record({kind_, step_, begin_ns_, monotonic_ns()});
    recorder_ = nullptr;
  }
  /// Discards the span.
  void forget() { recorder_ = nullptr; }
  /// Sets the span's step afterwards.
  void set_step(std::uint64_t step) { step_ = step; }

 private:
  SpanRecorder* recorder_;
  std::int64_t begin_ns_;
  std::uint64_t step_;
  SpanKind kind_;
};

}  // namespace troupe
