#include "runtime/call/call_queue.hpp"

#include <algorithm>
#include <deque>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/thread_cpu_time.hpp"

namespace troupe {
namespace {

class Unanswered final : public IncomingCallState {
  void take_answer(CallAnswer /*answer*/) override {}
};

IncomingCall numbered(std::uint64_t id) {
  const auto state = std::make_shared<Unanswered>();
  IncomingCall call;
  call.id = id;
  call.answer = CallReply(state);
  call.cancel = CancelToken(state);
  return call;
}

TEST(CallQueue, keeps_the_order_of_those_that_are_not_taken_out) {
  constexpr unsigned seed = 20261127;
  std::minstd_rand random(seed);
  CallQueue queue;
  std::deque<std::pair<std::uint64_t, CancelToken>> expected;
  std::uint64_t next = 0;
  for (int step = 0; step < 100'000; ++step) {
    const auto choice = std::uniform_int_distribution(0, 99)(random);
    // There are more, and then less.
    const bool grows = step / 5000 % 2 == 0;
    if (expected.empty() || choice < (grows ? 60 : 30)) {
      auto call = numbered(++next);
      expected.emplace_back(call.id, call.cancel);
      queue.push(std::move(call));
    } else if (choice < 80) {
      const auto at = std::uniform_int_distribution<std::size_t>(0, expected.size() - 1)(random);
      const auto taken = queue.take(expected[at].second);
      ASSERT_TRUE(taken) << "seed " << seed << ", step " << step;
      EXPECT_EQ(taken->id, expected[at].first);
      EXPECT_FALSE(queue.take(expected[at].second)) << "it is not there any more";
      expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(at));
    } else {
      ASSERT_EQ(queue.pop().id, expected.front().first) << "seed " << seed << ", step " << step;
      expected.pop_front();
    }
    ASSERT_EQ(queue.size(), expected.size());
  }
  for (const IncomingCall& call : queue.take_all()) {
    ASSERT_EQ(call.id, expected.front().first);
    expected.pop_front();
  }
  EXPECT_TRUE(expected.empty());
  EXPECT_TRUE(queue.empty());
}

TEST(CallQueue, does_not_take_a_call_of_another_queue_for_its_own) {
  CallQueue first, second;
  auto moved = numbered(1);
  const CancelToken token = moved.cancel;
  first.push(std::move(moved));
  second.push(first.pop());
  first.push(numbered(2));
  first.push({});  // never cancelled
  EXPECT_FALSE(first.take(token));
  EXPECT_FALSE(first.take(CancelToken()));
  EXPECT_EQ(second.take(token)->id, 1U);
  EXPECT_EQ(first.size(), 2U);
}

TEST(CallQueue, holds_no_more_memory_than_for_twice_its_calls) {
  CallQueue queue;
  queue.push(numbered(0));  // stays the next one
  std::deque<CancelToken> others;
  for (std::uint64_t id = 1; id < 20'000; ++id) {
    auto call = numbered(id);
    others.push_back(call.cancel);
    queue.push(std::move(call));
    if (others.size() < 10) continue;
    EXPECT_TRUE(queue.take(others.front()));
    others.pop_front();
  }
  EXPECT_LE(queue.capacity(), 64U);
  for (std::uint64_t id = 0; id < 20'000; ++id) queue.push(numbered(id));
  (void)queue.take_all();
  EXPECT_LE(queue.capacity(), 1024U);
}

TEST(CallQueue, takes_the_same_time_for_each_cancelled_call_however_many_wait) {
  const auto time_of_cancels = [](int calls) {
    CallQueue queue;
    std::vector<CancelToken> tokens;
    for (int i = 0; i < calls; ++i) {
      auto call = numbered(static_cast<std::uint64_t>(i));
      tokens.push_back(call.cancel);
      queue.push(std::move(call));
    }
    std::shuffle(tokens.begin(), tokens.end(), std::minstd_rand(7));
    tokens.resize(1000);
    const double start = thread_cpu_s();
    for (const auto& token : tokens) EXPECT_TRUE(queue.take(token));
    return thread_cpu_s() - start;
  };
  const double with_few = least_of(5, [&] { return time_of_cancels(2000); });
  const double with_many = least_of(5, [&] { return time_of_cancels(100'000); });
  // It would be 50 if all were looked at; caches make for up to 4.
  EXPECT_LT(with_many, 15 * with_few);
}

}  // namespace
}  // namespace troupe
