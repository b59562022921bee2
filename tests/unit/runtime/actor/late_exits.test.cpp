#include "runtime/actor/late_exits.hpp"

#include <gtest/gtest.h>

#include "tests/support/thread_cpu_time.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;

constexpr LateExits::Clock::time_point start{1h};

/// Looks every 100 ms for so long; returns the actors that are given up.
std::vector<ActorId> look(LateExits& exits, LateExits::Clock::time_point& now,
                          std::chrono::milliseconds time) {
  std::vector<ActorId> late;
  for (const auto until = now + time; now < until;) {
    now += 100ms;
    for (const auto& one : exits.take_late(now)) late.push_back(one.actor);
  }
  return late;
}

TEST(LateExits, are_given_up_once_after_the_grace) {
  LateExits exits(1000ms);
  auto now = start;
  EXPECT_FALSE(exits.left(now)) << "nobody has asked";
  exits.ask(7, "enough", now);
  exits.ask(8, "no luck", now);
  exits.ask(7, "another reason", now);
  const auto left = exits.left(now);
  ASSERT_TRUE(left);
  EXPECT_LE(*left, Deadline::slice);
  EXPECT_TRUE(look(exits, now, 900ms).empty());
  EXPECT_TRUE(exits.note_end(8)) << "it has ended in time";
  now += 100ms;
  const auto late = exits.take_late(now);
  ASSERT_EQ(late.size(), 1U);
  EXPECT_EQ(late[0].actor, 7U);
  EXPECT_EQ(late[0].reason, "enough");
  EXPECT_TRUE(exits.is_given_up(7));
  EXPECT_TRUE(look(exits, now, 2000ms).empty());
  EXPECT_FALSE(exits.note_end(7)) << "it is told already";
  EXPECT_FALSE(exits.left(now));
}

TEST(LateExits, have_their_grace_although_the_process_was_stopped_meanwhile) {
  LateExits exits(1000ms);
  auto now = start;
  exits.ask(7, "enough", now);
  now += 1h;  // it did not run
  EXPECT_TRUE(exits.take_late(now).empty());
  EXPECT_TRUE(look(exits, now, 400ms).empty());
  EXPECT_EQ(look(exits, now, 600ms), std::vector<ActorId>{7});
}

TEST(LateExits, of_the_next_incarnation_have_their_own_grace) {
  LateExits exits(1000ms);
  auto now = start;
  exits.ask(6, "first", now);
  exits.ask(7, "enough", now);
  EXPECT_TRUE(exits.note_end(7));
  EXPECT_TRUE(look(exits, now, 500ms).empty());
  exits.ask(8, "no luck", now);
  EXPECT_TRUE(look(exits, now, 300ms).empty());
  exits.ask(7, "again", now);
  EXPECT_EQ(look(exits, now, 600ms), std::vector<ActorId>{6});
  EXPECT_EQ(look(exits, now, 200ms), std::vector<ActorId>{8});
  EXPECT_EQ(look(exits, now, 300ms), std::vector<ActorId>{7});
  EXPECT_FALSE(exits.note_end(7));
  EXPECT_FALSE(exits.is_given_up(7)) << "nothing of it is kept";
  exits.ask(7, "once more", now);
  EXPECT_TRUE(exits.note_end(7));
}

TEST(LateExits, are_looked_at_in_the_same_time_however_many_there_are) {
  const auto time_of_looks = [](ActorId actors) {
    LateExits exits(1h);
    auto now = start;
    for (ActorId id = 1; id <= actors; ++id) exits.ask(id, "enough", now);
    const double begin = thread_cpu_s();
    for (ActorId id = 1; id <= 1000; ++id) {
      now += 1ms;
      EXPECT_TRUE(exits.take_late(now).empty());
      EXPECT_TRUE(exits.left(now));
      EXPECT_TRUE(exits.note_end(id));
    }
    return thread_cpu_s() - begin;
  };
  const double with_few = least_of(5, [&] { return time_of_looks(1000); });
  const double with_many = least_of(5, [&] { return time_of_looks(40'000); });
  // It would be more than 40 if each look were at all; caches make for up to 3.
  EXPECT_LT(with_many, 10 * with_few);
}

}  // namespace
}  // namespace troupe
