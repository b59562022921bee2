#include "actors/telemetry/span_recorder.hpp"

#include <chrono>
#include <set>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace troupe {
namespace {

TEST(SpanRecorder, keeps_the_latest_spans_in_order_and_counts_all) {
  SpanRecorder recorder(4);
  for (int i = 0; i < 10; ++i) {
    recorder.set_step(static_cast<std::uint64_t>(i));
    recorder.record(SpanKind::step, i * 100, i * 100 + 7);
  }
  const auto [spans, all] = recorder.spans();
  EXPECT_FALSE(all);
  ASSERT_EQ(spans.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(spans[i].step, 6 + i);
    EXPECT_EQ(spans[i].begin_ns, static_cast<std::int64_t>(6 + i) * 100);
  }
  EXPECT_EQ(recorder.totals().count(SpanKind::step), 10U);
  EXPECT_DOUBLE_EQ(recorder.totals().seconds(SpanKind::step), 70e-9);
}

TEST(SpanRecorder, says_that_it_has_all_until_it_is_full) {
  SpanRecorder recorder(3);
  for (int i = 0; i < 3; ++i) {
    recorder.record(SpanKind::step, i, i + 1);
    EXPECT_TRUE(recorder.spans().all);
  }
  recorder.record(SpanKind::step, 3, 4);
  EXPECT_FALSE(recorder.spans().all);
}

TEST(SpanRecorder, counts_short_exchanges_without_keeping_them) {
  SpanRecorder recorder(16, 1000);
  recorder.record(SpanKind::exchange, 0, 999);
  recorder.record(SpanKind::exchange, 2000, 3000);
  recorder.record(SpanKind::forward, 4000, 4001);
  EXPECT_EQ(recorder.totals().count(SpanKind::exchange), 2U);
  ASSERT_EQ(recorder.spans().spans.size(), 2U);
  EXPECT_EQ(recorder.spans().spans[0].begin_ns, 2000);
  EXPECT_TRUE(recorder.spans().all);
}

TEST(SpanScope, notes_the_time_between_its_making_and_its_end_once) {
  SpanRecorder recorder;
  recorder.set_step(5);
  const std::int64_t before = monotonic_ns();
  {
    SpanScope outer(&recorder, SpanKind::step);
    SpanScope inner(&recorder, SpanKind::forward);
    SpanScope nothing(&recorder, SpanKind::sample);
    nothing.forget();
    inner.set_step(6);
    inner.end();
  }
  const std::int64_t after = monotonic_ns();
  const auto spans = recorder.spans().spans;
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0].kind, SpanKind::forward);
  EXPECT_EQ(spans[0].step, 6U);
  EXPECT_EQ(spans[1].kind, SpanKind::step);
  EXPECT_EQ(spans[1].step, 5U);
  EXPECT_LE(before, spans[1].begin_ns);
  EXPECT_LE(spans[1].begin_ns, spans[0].begin_ns);
  EXPECT_LE(spans[0].end_ns, spans[1].end_ns);
  EXPECT_LE(spans[1].end_ns, after);
}

TEST(SpanRecorder, may_be_read_while_it_records) {
  SpanRecorder recorder(64);
  std::thread writer([&] {
    for (int i = 0; i < 20'000; ++i) recorder.record(SpanKind::step, i, i + 1);
  });
  std::uint64_t last = 0;
  while (last < 20'000) {
    const std::uint64_t now = recorder.totals().count(SpanKind::step);
    EXPECT_LE(last, now);
    last = now;
    EXPECT_LE(recorder.spans().spans.size(), 64U);
  }
  writer.join();
}

TEST(SpanKind, each_has_its_own_words) {
  std::set<std::string> names, descriptions;
  for (std::size_t kind = 0; kind < span_kinds; ++kind) {
    names.emplace(name(static_cast<SpanKind>(kind)));
    descriptions.emplace(describe(static_cast<SpanKind>(kind)));
  }
  EXPECT_EQ(names.size(), span_kinds);
  EXPECT_EQ(descriptions.size(), span_kinds);
  EXPECT_EQ(name(SpanKind::write), "write");
}

}  // namespace
}  // namespace troupe
