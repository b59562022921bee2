#include "runtime/process/strangers.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

using namespace std::chrono_literals;

TEST(Strangers, the_oldest_silent_one_makes_room_before_one_that_speaks) {
  Strangers strangers(3, 2s);
  const Strangers::Clock::time_point now{};
  for (const int fd : {1, 2, 3}) EXPECT_EQ(strangers.add(fd, now), std::nullopt);
  strangers.mark_speaking(1);
  EXPECT_EQ(strangers.add(4, now), 2);
  EXPECT_EQ(strangers.add(5, now), 3);
  strangers.mark_speaking(4);
  strangers.mark_speaking(5);
  EXPECT_EQ(strangers.add(6, now), 1) << "all speak: the oldest";
  EXPECT_EQ(strangers.size(), 3U);
}

TEST(Strangers, have_their_time_and_no_more) {
  Strangers strangers(10, 2s);
  const Strangers::Clock::time_point start{};
  EXPECT_EQ(strangers.due(), Strangers::Clock::time_point::max());
  strangers.add(1, start);
  strangers.add(2, start + 1s);
  EXPECT_EQ(strangers.overdue(start + 1999ms), std::nullopt);
  EXPECT_EQ(strangers.overdue(start + 2s), 1);
  strangers.remove(1);
  EXPECT_EQ(strangers.overdue(start + 2s), std::nullopt);
  EXPECT_EQ(strangers.due(), start + 3s);
}

}  // namespace
}  // namespace troupe
