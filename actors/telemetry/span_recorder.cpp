#include "actors/telemetry/span_recorder.hpp"

#include <algorithm>

namespace troupe {

SpanRecorder::SpanRecorder(std::size_t capacity, std::int64_t shortest_exchange_ns)
    : capacity_(std::max<std::size_t>(capacity, 1)), shortest_exchange_ns_(shortest_exchange_ns) {
  ring_.reserve(capacity_);
}

void SpanRecorder::record(const Span& span) {
  const std::int64_t length = span.end_ns - span.begin_ns;
  std::lock_guard lock(mutex_);
  const auto kind = static_cast<std::size_t>(span.kind);
  ++totals_.counts[kind];
  totals_.ns[kind] += length;
  if (span.kind == SpanKind::exchange && length < shortest_exchange_ns_) return;
  if (ring_.size() < capacity_) {
    ring_.push_back(span);
    return;
  }
  overwritten_ = true;
  ring_[next_] = span;
  next_ = (next_ + 1) % capacity_;
}

SpanTotals SpanRecorder::totals() const {
  std::lock_guard lock(mutex_);
  return totals_;
}

SpanRecorder::Kept SpanRecorder::spans() const {
  std::lock_guard lock(mutex_);
  Kept kept;
  kept.all = !overwritten_;
  kept.spans.reserve(ring_.size());
  const auto oldest = ring_.begin() + static_cast<std::ptrdiff_t>(next_);
  kept.spans.insert(kept.spans.end(), oldest, ring_.end());
  kept.spans.insert(kept.spans.end(), ring_.begin(), oldest);
  return kept;
}

}  // namespace troupe
