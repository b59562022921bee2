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
  EXPECT_FALSE(blame.take(1, start + OomBlame::memory + 1s));
  EXPECT_TRUE(blame.take(2, start + 1min)) << "a kill of its own";
}

}  // namespace
}  // namespace troupe
