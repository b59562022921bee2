#include "runtime/memory/futex.hpp"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace troupe {
namespace {

using namespace std::chrono_literals;

TEST(Futex, wait_returns_at_once_when_the_word_differs) {
  std::atomic<std::uint32_t> word{1};
  EXPECT_TRUE(futex_wait_until(word, 0, std::chrono::steady_clock::now() + 10s));
}

TEST(Futex, wait_reports_a_deadline_that_has_passed) {
  std::atomic<std::uint32_t> word{0};
  EXPECT_FALSE(futex_wait_until(word, 0, std::chrono::steady_clock::now() + 1ms));
  EXPECT_FALSE(futex_wait_until(word, 0, std::chrono::steady_clock::now() - 1s));
}

TEST(SharedEvent, wait_gives_up_at_the_deadline) {
  SharedEvent event;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(event.wait([] { return false; }, deadline_in(5ms), {}));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 5ms);
}

TEST(SharedEvent, ring_without_a_change_does_not_end_a_wait) {
  SharedEvent event;
  std::atomic<bool> stop{false};
  std::thread ringer([&] {
    while (!stop.load()) event.notify();
  });
  EXPECT_FALSE(event.wait([] { return false; }, deadline_in(5ms), {}));
  stop = true;
  ringer.join();
}

TEST(SharedEvent, spins_only_when_there_is_a_core_for_everybody) {
  EXPECT_EQ(SpinBudget::for_waiters(1'000'000).spin, 0ns);
  EXPECT_GT(SpinBudget::for_waiters(1).spin, 0ns);
  EXPECT_LE(SpinBudget::for_waiters(1).spin, 5us);
}

// Two threads pass a counter back and forth; a lost wake-up ends in the deadline.
TEST(SharedEvent, loses_no_wake_up_in_many_handovers) {
  for (const std::chrono::nanoseconds spin : {0ns, 500ns}) {
    SharedEvent event;
    std::atomic<std::uint64_t> turn{0};
    constexpr std::uint64_t turns = 4'000;
    std::atomic<int> late{0};
    const auto play = [&](std::uint64_t parity) {
      for (std::uint64_t i = parity; i < turns; i += 2) {
        const auto mine = [&] { return turn.load(std::memory_order_acquire) == i; };
        if (!event.wait(mine, deadline_in(10s), {spin})) {
          ++late;
          return;
        }
        turn.store(i + 1, std::memory_order_release);
        event.notify();
      }
    };
    std::thread other(play, 1);
    play(0);
    other.join();
    EXPECT_EQ(late.load(), 0) << "turn " << turn.load() << ", spin " << spin.count() << " ns";
    EXPECT_EQ(turn.load(), turns);
  }
}

}  // namespace
}  // namespace troupe
