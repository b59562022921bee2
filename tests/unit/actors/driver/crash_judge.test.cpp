#include "actors/driver/crash_judge.hpp"

#include <gtest/gtest.h>
#include <signal.h>

namespace troupe {
namespace {

constexpr ActorId executor = 1, left = 2, right = 3;

ActorDown loss(ActorId id, DownCause cause, int code = 0, std::uint32_t incarnation = 0) {
  ActorDown down;
  down.id = id;
  down.cause = cause;
  down.code = code;
  down.incarnation = incarnation;
  return down;
}

CrashJudge after_steps() {
  CrashJudge judge;
  judge.steps_ended({{executor, 0}, {left, 0}, {right, 0}});
  judge.add_under_way({{.request = 7}, {.request = 8}});
  return judge;
}

TEST(CrashJudge, counts_a_crash_that_is_reported_after_its_consequence) {
  CrashJudge judge = after_steps();
  const ActorDown silent = loss(left, DownCause::unresponsive);
  EXPECT_FALSE(judge.is_crash({silent}));
  EXPECT_TRUE(judge.is_crash({silent, loss(right, DownCause::signal, SIGSEGV)}));
  EXPECT_EQ(judge.under_way(), (std::vector<UnderWay>{{.request = 7}, {.request = 8}}));
}

TEST(CrashJudge, counts_one_crash_each_time_that_steps_end) {
  CrashJudge judge = after_steps();
  const ActorDown first = loss(left, DownCause::signal, SIGSEGV);
  EXPECT_TRUE(judge.is_crash({first}));
  EXPECT_FALSE(judge.is_crash({first, loss(right, DownCause::exit_code, 1)}));
  judge.steps_ended({{executor, 0}, {left, 1}, {right, 1}});
  EXPECT_TRUE(judge.under_way().empty());
  EXPECT_TRUE(judge.is_crash({loss(left, DownCause::signal, SIGSEGV, 1)}));
}

TEST(CrashJudge, does_not_count_a_process_that_had_no_requests_yet) {
  CrashJudge judge = after_steps();
  const ActorDown silent = loss(left, DownCause::unresponsive);
  EXPECT_FALSE(judge.is_crash({silent, loss(left, DownCause::exit_code, 1, 1)}));
}

TEST(CrashJudge, counts_a_rank_that_was_killed_since_it_hung) {
  CrashJudge judge = after_steps();
  judge.note_hang(right, 0);
  const ActorDown killed = loss(right, DownCause::signal, SIGKILL);
  EXPECT_FALSE(judge.is_crash({loss(left, DownCause::signal, SIGKILL)})) << "another one";
  EXPECT_TRUE(judge.is_crash({loss(left, DownCause::exited), killed}));
  EXPECT_FALSE(judge.is_crash({killed})) << "it is counted";
  judge.steps_ended({{executor, 0}, {left, 1}, {right, 1}});
  EXPECT_FALSE(judge.is_crash({loss(right, DownCause::signal, SIGKILL, 1)}))
      << "the next one did not hang";
}

TEST(CrashJudge, finds_the_cause_although_a_survivor_was_killed_since_it_did_not_leave) {
  CrashJudge judge = after_steps();
  judge.note_consequence(right, 0);
  EXPECT_TRUE(
      judge.is_crash({loss(right, DownCause::signal, SIGKILL), loss(left, DownCause::exited)}));
}

TEST(CrashJudge, does_not_count_an_exit_in_reaction_to_a_kill) {
  CrashJudge judge = after_steps();
  EXPECT_FALSE(
      judge.is_crash({loss(left, DownCause::exited), loss(right, DownCause::signal, SIGKILL)}));
}

}  // namespace
}  // namespace troupe
