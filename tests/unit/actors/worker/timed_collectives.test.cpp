#include "actors/worker/timed_collectives.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/collectives/forwarding_collectives.hpp"
#include "parallel/collectives/self_collectives.hpp"

namespace troupe {
namespace {

/// Has everything that only some collectives have, and records the calls.
class NotingCollectives final : public ForwardingCollectives {
 public:
  explicit NotingCollectives(std::vector<std::string>& calls)
      : ForwardingCollectives(std::make_unique<SelfCollectives>()), calls_(calls) {}

  bool can_all_reduce_rms_norm(DType, std::int64_t) const override { return true; }
  bool prefers_sharded_residual(std::size_t) const override { return true; }
  Result<void> all_reduce_rms_norm(const AllReduceRmsNorm&) override {
    return note("all_reduce_rms_norm");
  }
  Result<std::unique_ptr<OverlappedAllReduce>> open_overlapped_all_reduce(DType, std::int64_t,
                                                                          std::int64_t) override {
    TROUPE_CHECK(note("open_overlapped_all_reduce"));
    return std::unique_ptr<OverlappedAllReduce>();
  }
  Result<void> columns_to_rows(const Tensor&, const Tensor&, const Tensor&) override {
    return note("columns_to_rows");
  }
  Result<std::unique_ptr<DeviceExpertExchange>> open_expert_exchange(
      const DeviceExpertExchangeLayout&) override {
    TROUPE_CHECK(note("open_expert_exchange"));
    return std::unique_ptr<DeviceExpertExchange>();
  }
  Result<void> library_all_reduce(const Tensor&, const Tensor&) override {
    return note("library_all_reduce");
  }

 private:
  Result<void> note(const char* call) {
    calls_.emplace_back(call);
    return {};
  }

  std::vector<std::string>& calls_;
};

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

TEST(TimedCollectives, tell_the_latest_call_and_how_many_there_were) {
  SpanRecorder recorder(64, 0);
  TimedCollectives timed(std::make_unique<SelfCollectives>(), recorder, SpanKind::exchange,
                         "tensor", {3});
  EXPECT_EQ(timed.state().group, "tensor");
  EXPECT_EQ(timed.state().op, "");
  std::vector<float> from = {1, 2, 3}, to(3);
  const Tensor partial(from.data(), DType::f32, Shape{3, 1});
  const Tensor sum(to.data(), DType::f32, Shape{3, 1});
  EXPECT_TRUE(timed.barrier().ok());
  EXPECT_TRUE(timed.all_reduce_tree(partial, sum).ok());
  (void)timed.send(partial, 0);
  CollectiveState state = timed.state();
  EXPECT_EQ(state.ranks, std::vector<std::int32_t>{3});
  EXPECT_EQ(state.calls, 2U);
  EXPECT_EQ(state.sends, std::vector<std::uint64_t>{1});
  EXPECT_EQ(state.op, "send");
  EXPECT_EQ(state.peer, 0);
  EXPECT_EQ(state.bytes, 12U);
  EXPECT_FALSE(state.is_inside);
  (void)timed.send(partial, 7);  // refused, and no rank of the group
  timed.replace(std::make_unique<SelfCollectives>());
  state = timed.state();
  EXPECT_EQ(state.calls, 0U) << "a group that has formed anew counts anew";
  EXPECT_EQ(state.op, "");
}

TEST(TimedCollectives, passes_on_what_only_some_collectives_have) {
  SpanRecorder recorder(64, 0);
  std::vector<std::string> calls;
  TimedCollectives timed(std::make_unique<NotingCollectives>(calls), recorder, SpanKind::exchange);
  EXPECT_TRUE(timed.can_all_reduce_rms_norm(DType::bf16, 64));
  EXPECT_TRUE(timed.prefers_sharded_residual(1));
  EXPECT_TRUE(timed.all_reduce_rms_norm({}).ok());
  EXPECT_TRUE(timed.open_overlapped_all_reduce(DType::bf16, 1, 64).ok());
  EXPECT_TRUE(timed.columns_to_rows({}, {}, {}).ok());
  EXPECT_TRUE(timed.open_expert_exchange({}).ok());
  EXPECT_TRUE(timed.library_all_reduce({}, {}).ok());
  EXPECT_THAT(
      calls, testing::ElementsAre("all_reduce_rms_norm", "open_overlapped_all_reduce",
                                  "columns_to_rows", "open_expert_exchange", "library_all_reduce"));
  EXPECT_EQ(recorder.spans().spans.size(), 3U) << "what only opens waits for nobody";
}

TEST(TimedCollectives, gives_a_later_timeout_to_the_inner_ones_too) {
  SpanRecorder recorder(64, 0);
  auto inner = std::make_unique<SelfCollectives>();
  const Collectives& seen = *inner;
  TimedCollectives timed(std::move(inner), recorder, SpanKind::exchange);
  timed.set_timeout(std::chrono::milliseconds(7));
  EXPECT_EQ(timed.timeout(), std::chrono::milliseconds(7));
  EXPECT_EQ(seen.timeout(), std::chrono::milliseconds(7));
}

}  // namespace
}  // namespace troupe
