#include "runtime/call/callback_thread.hpp"

#include <atomic>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/call/future.hpp"
#include "tests/support/blocked_callback.hpp"

namespace troupe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

std::shared_ptr<CallbackThread> start(std::chrono::milliseconds grace) {
  return CallbackThread::start([](ActorId) {}, grace).value();
}

Promise<int> answered_on(const std::shared_ptr<CallbackThread>& thread, int answer) {
  const Promise<int> promise({thread, 7});
  promise.complete(answer);
  return promise;
}

TEST(CallbackThread, leaves_a_callback_that_blocks_behind_and_says_which) {
  const auto blocked = std::make_shared<test::BlockedCallback>();
  const auto dropped = std::make_shared<int>(0);
  testing::internal::CaptureStderr();
  {
    const auto thread = start(50ms);
    answered_on(thread, 1).future().then([blocked](const Result<int>&) { blocked->block(); });
    ASSERT_TRUE(blocked->has_begun());
    answered_on(thread, 2).future().then([dropped](const Result<int>&) { ++*dropped; });
    thread->stop();
    EXPECT_EQ(thread->backlog(7).callbacks, 0U);
  }
  EXPECT_FALSE(blocked->has_ended());
  EXPECT_EQ(dropped.use_count(), 1) << "its callback is gone";
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("leaves_a_callback_that_blocks"), HasSubstr("left behind"),
                    HasSubstr("1 behind it are dropped")));
  blocked->go_on();
  EXPECT_TRUE(blocked->ends());
  EXPECT_EQ(*dropped, 0);
}

TEST(CallbackThread, runs_all_that_is_due_while_callbacks_return) {
  std::vector<int> answers;
  const auto thread = start(20s);
  for (int i = 0; i < 100; ++i) {
    answered_on(thread, i).future().then([&](const Result<int>& one) { answers.push_back(*one); });
  }
  thread->stop();
  ASSERT_EQ(answers.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(answers[static_cast<std::size_t>(i)], i);
}

}  // namespace
}  // namespace troupe
