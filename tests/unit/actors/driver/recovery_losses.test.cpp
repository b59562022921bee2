#include "actors/driver/recovery_losses.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

using namespace std::chrono_literals;

constexpr RecoveryLosses::Clock::time_point start{1h};

ActorDown loss(ActorId id) {
  ActorDown down;
  down.id = id;
  return down;
}

TEST(RecoveryLosses, count_from_the_first_one_and_keep_what_follows_from_it) {
  RecoveryLosses losses;
  EXPECT_TRUE(losses.note(loss(1), true, start));
  EXPECT_TRUE(losses.note(loss(2), false, start + 1s));
  EXPECT_EQ(losses.since(), start);
  EXPECT_EQ(losses.take().size(), 2U);
  EXPECT_TRUE(losses.empty());
}

TEST(RecoveryLosses, do_not_keep_a_late_report_for_the_next_recovery) {
  RecoveryLosses losses;
  EXPECT_TRUE(losses.note(loss(1), true, start));
  (void)losses.take();
  EXPECT_FALSE(losses.note(loss(2), false, start + 1s)) << "that recovery has replaced it";
  EXPECT_TRUE(losses.note(loss(1), true, start + 1min));
  EXPECT_EQ(losses.since(), start + 1min);
  EXPECT_EQ(losses.all().size(), 1U);
}

}  // namespace
}  // namespace troupe
