#include "runtime/call/wait.hpp"

#include <thread>
#include <tuple>

#include <gtest/gtest.h>

namespace troupe {
namespace {

using namespace std::chrono_literals;

std::vector<Future<int>> futures_of(const std::vector<Promise<int>>& promises) {
  std::vector<Future<int>> futures;
  for (const auto& promise : promises) futures.push_back(promise.future());
  return futures;
}

TEST(Wait, for_any_future_returns_the_first_that_is_ready_and_leaves_its_answer) {
  const std::vector<Promise<int>> promises(3);
  auto futures = futures_of(promises);
  std::thread answering([&] { promises[1].complete(7); });
  const auto first = wait_any(futures, 10s);
  answering.join();
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(*first, 1U);
  EXPECT_EQ(*futures[1].get(0s), 7);
  promises[0].complete(fail(ErrorCode::io, "an error is an answer, too"));
  EXPECT_EQ(*wait_any(futures, 10s), 0U);
}

TEST(Wait, for_any_future_times_out_and_forgets_the_futures) {
  const std::vector<Promise<int>> promises(2);
  const auto futures = futures_of(promises);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(wait_any(futures, 1ms).error().code, ErrorCode::timed_out);
  }
  promises[1].complete(1);  // nobody waits any more
  EXPECT_EQ(*wait_any(futures, 10s), 1U);
  EXPECT_EQ(wait_any(std::vector<Future<int>>(), 1ms).error().code, ErrorCode::invalid_argument);
}

TEST(Wait, for_all_futures_says_how_many_came_in_time) {
  const std::vector<Promise<int>> promises(3);
  const auto futures = futures_of(promises);
  promises[2].complete(1);
  const auto late = wait_all(futures, 1ms);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::timed_out);
  EXPECT_EQ(late.error().message, "1 of 3 answers came within 1 ms");
  std::thread answering([&] {
    promises[0].complete(fail(ErrorCode::io, "no luck"));
    promises[1].complete(1);
  });
  EXPECT_TRUE(wait_all(futures, 10s).ok());
  answering.join();
}

TEST(Wait, takes_futures_of_different_types) {
  const Promise<int> number;
  const Promise<std::string> text;
  const Promise<void> nothing;
  const std::tuple futures{number.future(), text.future(), nothing.future()};
  EXPECT_EQ(wait_any(futures, 1ms).error().code, ErrorCode::timed_out);
  nothing.complete({});
  EXPECT_EQ(*wait_any(futures, 10s), 2U);
  EXPECT_EQ(*wait_any(10s, number.future(), nothing.future()), 1U);
  EXPECT_EQ(wait_all(1ms, number.future(), text.future()).error().code, ErrorCode::timed_out);
  number.complete(1);
  text.complete(std::string("x"));
  EXPECT_TRUE(wait_all(futures, 10s).ok());
  EXPECT_TRUE(wait_all(10s, number.future(), text.future()).ok());
}

}  // namespace
}  // namespace troupe
