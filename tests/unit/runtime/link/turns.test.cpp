#include "runtime/link/turns.hpp"

#include <algorithm>
#include <semaphore>
#include <vector>

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include "runtime/process/unique_fd.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto limit = 10s;
constexpr auto forever = 1h;  // a rest that a test does not live to see end

/// Runs a loop that does nothing but report when the own thread has it.
class OwnThread {
 public:
  explicit OwnThread(std::chrono::milliseconds rest)
      : turns_(rest), wake_(::eventfd(0, EFD_CLOEXEC)) {
    turns_.set_wake_fd(wake_.get());
    thread_ = std::thread([this] { run(); });
    EXPECT_TRUE(has_begun());
  }
  ~OwnThread() {
    turns_.stop();
    thread_.join();
  }

  Turns& turns() { return turns_; }
  bool is_running() const { return is_running_; }
  /// Waits until the own thread has the loop again.
  bool has_begun() { return begun_.try_acquire_for(limit); }
  bool has_begun_already() { return begun_.try_acquire(); }

 private:
  void run() {
    while (turns_.begin_own()) {
      is_running_ = true;
      begun_.release();
      while (!turns_.must_give_way()) {
        eventfd_t count = 0;
        ::eventfd_read(wake_.get(), &count);
      }
      is_running_ = false;
      turns_.end_own();
    }
  }

  Turns turns_;
  const UniqueFd wake_;
  std::atomic<bool> is_running_ = false;
  std::counting_semaphore<> begun_{0};
  std::thread thread_;
};

TEST(Turns, interrupt_the_own_thread_and_have_the_loop_alone) {
  OwnThread own(forever);
  EXPECT_FALSE(own.turns().is_mine());
  own.turns().begin();
  EXPECT_FALSE(own.is_running());
  EXPECT_TRUE(own.turns().is_mine());
  own.turns().end(false);
  EXPECT_FALSE(own.turns().is_mine());
}

TEST(Turns, of_one_thread_may_be_nested) {
  OwnThread own(forever);
  own.turns().begin();
  own.turns().begin();
  own.turns().end(true);
  EXPECT_TRUE(own.turns().is_mine());
  EXPECT_FALSE(own.has_begun_already());
  own.turns().end(true);
  EXPECT_TRUE(own.has_begun());
}

TEST(Turns, of_several_threads_wait_for_each_other) {
  OwnThread own(1ms);
  std::atomic<int> inside = 0, most = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int round = 0; round < 500; ++round) {
          own.turns().begin();
          most = std::max(most.load(), ++inside + (own.is_running() ? 1 : 0));
          --inside;
          own.turns().end(round % 2 == 0);
        }
      });
    }
  }
  EXPECT_EQ(most, 1);
  EXPECT_TRUE(own.has_begun());
}

TEST(Turns, let_the_own_thread_rest_before_it_goes_on) {
  constexpr auto rest = 20ms;
  OwnThread own(rest);
  own.turns().begin();
  const auto ended = Clock::now();
  own.turns().end(false);
  ASSERT_TRUE(own.has_begun());
  EXPECT_GE(Clock::now() - ended, rest);
}

TEST(Turns, that_leave_work_behind_let_the_own_thread_go_on_at_once) {
  OwnThread own(forever);
  own.turns().begin();
  own.turns().end(true);
  EXPECT_TRUE(own.has_begun());
}

TEST(Turns, end_the_rest_of_the_own_thread_when_there_is_something_to_do) {
  OwnThread own(forever);
  own.turns().begin();
  own.turns().end(false);
  EXPECT_FALSE(own.has_begun_already());
  own.turns().wake();
  EXPECT_TRUE(own.has_begun());
}

TEST(Turns, wake_whoever_has_the_loop_but_not_from_the_thread_that_has_it) {
  const UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  Turns turns;
  turns.set_wake_fd(wake.get());
  turns.begin();
  turns.wake();
  eventfd_t count = 0;
  EXPECT_NE(::eventfd_read(wake.get(), &count), 0);
  std::thread([&] { turns.wake(); }).join();
  EXPECT_EQ(::eventfd_read(wake.get(), &count), 0);
  turns.end(false);
}

TEST(Turns, that_stop_end_the_own_thread_while_it_waits_and_while_it_rests) {
  {
    const OwnThread waits(forever);
  }
  OwnThread rests(forever);
  rests.turns().begin();
  rests.turns().end(false);
}

}  // namespace
}  // namespace troupe
