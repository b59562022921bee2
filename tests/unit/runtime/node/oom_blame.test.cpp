#include "runtime/node/oom_blame.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

using namespace std::chrono_literals;

constexpr OomBlame::Clock::time_point start{1h};

TEST(OomBlame, is_for_one_process_for_each_kill_that_is_counted) {
  OomBlame blame;
  blame.begin(3);
  EXPECT_FALSE(blame.take(3, start));
  EXPECT_TRUE(blame.take(4, start + 1s));
  EXPECT_FALSE(blame.take(4, start + 1s)) << "the same kill";
  blame.note(6, start + 2s);
  EXPECT_TRUE(blame.take(6, start + 3s));
  EXPECT_TRUE(blame.take(6, start + 3s));
  EXPECT_FALSE(blame.take(6, start + 3s));
}

TEST(OomBlame, is_not_for_a_process_that_ends_long_after_the_kill_of_another_one) {
  OomBlame blame;
  blame.begin(0);
  blame.note(1, start);
  const auto late = start + OomBlame::memory + 1s;
  int due = 0;
  for (auto now = start; now < late; now += 200ms) {
    if (!blame.is_due(now)) continue;
    ++due;
    blame.note(1, now);
  }
  EXPECT_NEAR(due, (OomBlame::memory + 1s) / OomBlame::between_notes, 1) << "readings of the count";
  EXPECT_FALSE(blame.take(1, late));
  EXPECT_TRUE(blame.take(2, start + 1min)) << "a kill of its own";
}

TEST(OomBlame, does_not_count_time_in_which_its_process_was_stopped) {
  OomBlame blame;
  blame.begin(0);
  blame.note(1, start);
  EXPECT_TRUE(blame.take(1, start + 1h));
}

}  // namespace
}  // namespace troupe
