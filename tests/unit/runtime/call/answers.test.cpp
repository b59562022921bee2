#include "runtime/call/answers.hpp"

#include <chrono>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const std::vector<std::string> names{"worker-0", "worker-1", "worker-2"};

std::vector<Future<int>> futures_of(const std::vector<Promise<int>>& promises) {
  std::vector<Future<int>> futures;
  for (const Promise<int>& promise : promises) futures.push_back(promise.future());
  return futures;
}

TEST(Answers, are_in_the_order_of_the_calls) {
  const std::vector<Promise<int>> promises(3);
  for (const int i : {2, 0, 1}) promises[static_cast<std::size_t>(i)].complete(10 * i);
  auto calls = futures_of(promises);
  const auto answers = take_answers<int>(calls, names, seconds(5));
  ASSERT_TRUE(answers.ok()) << answers.error().message;
  EXPECT_THAT(*answers, testing::ElementsAre(0, 10, 20));
}

TEST(Answers, of_those_that_wait_for_a_failed_one_are_not_waited_for) {
  const std::vector<Promise<int>> promises(3);
  promises[2].complete(fail(ErrorCode::resource_exhausted, "no memory"));
  auto calls = futures_of(promises);
  const auto begin = std::chrono::steady_clock::now();
  const auto answers = take_answers<int>(calls, names, seconds(60));
  ASSERT_FALSE(answers.ok());
  EXPECT_EQ(answers.error().code, ErrorCode::resource_exhausted);
  EXPECT_EQ(answers.error().message, "worker-2: no memory");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(30));
}

TEST(Answers, that_do_not_come_are_named) {
  const std::vector<Promise<int>> promises(3);
  promises[0].complete(1);
  auto calls = futures_of(promises);
  const auto answers = take_answers<int>(calls, names, milliseconds(120));
  ASSERT_FALSE(answers.ok());
  EXPECT_EQ(answers.error().code, ErrorCode::timed_out);
  EXPECT_THAT(answers.error().message, testing::StartsWith("worker-1: no answer within"));
}

}  // namespace
}  // namespace troupe
