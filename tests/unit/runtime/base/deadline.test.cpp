#include "runtime/base/deadline.hpp"

#include <gtest/gtest.h>

#include "runtime/base/lease.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using Clock = Deadline::Clock;

TEST(Deadline, passes_when_its_time_has_passed_in_slices) {
  const Clock::time_point start{};
  Deadline deadline(1s, start);
  for (auto now = start; now < start + 1s; now += 200ms) EXPECT_FALSE(deadline.is_over(now));
  EXPECT_EQ(deadline.left(start + 999ms), 1ms);
  EXPECT_TRUE(deadline.is_over(start + 1s));
  EXPECT_EQ(deadline.left(start + 2s), 0ms);
}

TEST(Deadline, does_not_count_a_minute_in_which_the_process_was_stopped) {
  const Clock::time_point start{};
  Deadline deadline(1800ms, start);
  EXPECT_EQ(deadline.left(start + 200ms), 1600ms);
  EXPECT_EQ(deadline.left(start + 60200ms), 1600ms - 2 * Deadline::slice);
  EXPECT_FALSE(deadline.is_over(start + 60700ms));
  EXPECT_FALSE(deadline.is_over(start + 61200ms));
  EXPECT_TRUE(deadline.is_over(start + 61300ms)) << "a stop puts it off only once";
}

TEST(Deadline, is_to_be_looked_at_after_a_slice_or_at_its_end) {
  const Clock::time_point start{};
  Deadline deadline(600ms, start);
  EXPECT_EQ(deadline.next_look(start), start + Deadline::slice);
  EXPECT_EQ(deadline.next_look(start + 500ms), start + 600ms);
  EXPECT_EQ(Deadline(-1s, start).left(start), 0ms);
}

TEST(Deadline, ends_a_wait_on_a_condition) {
  std::mutex mutex;
  std::condition_variable changed;
  std::unique_lock lock(mutex);
  const auto start = Clock::now();
  EXPECT_FALSE(wait_for(changed, lock, 300ms, [] { return false; }));
  EXPECT_GE(Clock::now() - start, 300ms);
  EXPECT_TRUE(wait_for(changed, lock, 0ms, [] { return true; }));
}

TEST(Lease, expires_after_silence_and_not_before) {
  const Clock::time_point start{};
  Lease lease(1800ms, start);
  auto now = start;
  for (int i = 0; i < 50; ++i) {
    now += 200ms;
    EXPECT_FALSE(lease.has_expired(now));
    lease.renew(now);
  }
  const auto last_word = now;
  while (!lease.has_expired(now)) now += 200ms;
  EXPECT_EQ(now - last_word, 1800ms);
}

TEST(Lease, tells_how_long_silence_may_still_last) {
  const auto start = Clock::now();
  Lease lease(1800ms, start);
  EXPECT_EQ(lease.left(start), 1800ms);
  for (int i = 1; i <= 9; ++i) EXPECT_EQ(lease.left(start + i * 200ms), 1800ms - i * 200ms);
  EXPECT_TRUE(lease.has_expired(start + 1800ms));
}

TEST(Lease, outlives_any_stop_of_the_one_who_waits) {
  const Clock::time_point start{};
  Lease lease(1800ms, start);
  EXPECT_FALSE(lease.has_expired(start + 1000h));
}

}  // namespace
}  // namespace troupe
