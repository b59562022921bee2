#include "actors/worker/timed_collectives.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "parallel/collectives/self_collectives.hpp"

namespace troupe {
namespace {

TEST(TimedCollectives, notes_every_call_and_does_what_the_inner_ones_do) {
  SpanRecorder recorder(64, 0);
  auto inner = std::make_unique<SelfCollectives>();
  inner->set_timeout(std::chrono::milliseconds(123));
  TimedCollectives timed(std::move(inner), recorder, SpanKind::exchange);
  EXPECT_EQ(timed.rank(), 0);
  EXPECT_EQ(timed.size(), 1);
  EXPECT_EQ(timed.timeout(), std::chrono::milliseconds(123));

  std::vector<float> from = {1, 2, 3}, to(3);
  const Tensor partial(from.data(), DType::f32, Shape{3, 1});
  const Tensor sum(to.data(), DType::f32, Shape{3, 1});
  const std::vector<std::int64_t> rows = {3};
  const auto expect_copied = [&](const Result<void>& done) {
    EXPECT_TRUE(done.ok()) << done.error().message;
    EXPECT_EQ(to, from);
    to.assign(3, 0);
  };
  recorder.set_step(4);
  expect_copied(timed.all_reduce_tree(partial, sum));
  expect_copied(timed.reduce_scatter_tree(partial, sum, rows));
  expect_copied(timed.all_gather(partial, sum, rows));
  expect_copied(timed.all_to_all(partial, rows, sum, rows));
  EXPECT_TRUE(timed.broadcast(partial, 0).ok());
  EXPECT_TRUE(timed.barrier().ok());
  EXPECT_FALSE(timed.send(partial, 0).ok()) << "a group of one has nobody to send to";
  EXPECT_FALSE(timed.receive(sum, 0).ok());

  const auto spans = recorder.spans().spans;
  ASSERT_EQ(spans.size(), 8U);
  for (const Span& span : spans) {
    EXPECT_EQ(span.kind, SpanKind::exchange);
    EXPECT_EQ(span.step, 4U);
    EXPECT_LE(span.begin_ns, span.end_ns);
  }
  timed.abort();
  EXPECT_EQ(timed.barrier().error().code, ErrorCode::cancelled);
}

}  // namespace
}  // namespace troupe
