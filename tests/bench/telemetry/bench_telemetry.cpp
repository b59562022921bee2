// The cost of telemetry: nanoseconds for a span, a step record, an inter-token time, and
// milliseconds to hand everything over at the end of a job.

#include <cstdio>

#include "actors/telemetry/distribution_sketch.hpp"
#include "actors/telemetry/span_recorder.hpp"
#include "actors/telemetry/step_record.hpp"

namespace troupe {
namespace {

constexpr int rounds = 2'000'000;

template <class Note>
void measure(const char* what, Note&& note) {
  const std::int64_t begin = monotonic_ns();
  for (int i = 0; i < rounds; ++i) note(i);
  std::printf("%-30s %7.1f ns\n", what,
              static_cast<double>(monotonic_ns() - begin) / static_cast<double>(rounds));
}

int run() {
  SpanRecorder recorder;
  measure("a span, kept", [&](int i) {
    recorder.set_step(static_cast<std::uint64_t>(i));
    const SpanScope scope(&recorder, SpanKind::forward);
  });
  measure("a span, counted", [&](int) { const SpanScope scope(&recorder, SpanKind::exchange); });
  StepBatch batch;
  measure("a step record", [&](int i) {
    StepRecord record;
    record.answered_us = i;
    batch.add(record);
  });
  DistributionSketch sketch;
  measure("the time between two tokens",
          [&](int i) { sketch.add(static_cast<std::uint64_t>(1000 + i % 4096)); });
  const std::int64_t begin = monotonic_ns();
  const std::size_t spans = recorder.spans().spans.size();
  std::printf("%-30s %7.3f ms for %zu\n", "handing the spans over",
              static_cast<double>(monotonic_ns() - begin) * 1e-6, spans);
  return sketch.count() == rounds && !batch.take().empty() ? 0 : 1;
}

}  // namespace
}  // namespace troupe

int main() { return troupe::run(); }
