#include "launcher/job/exit_messages.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

const JobStanding standing{
    .done = 12, .before = 0, .total = 40, .output = "out.jsonl", .folder = "out.jsonl.job"};

TEST(ExitMessages, say_what_is_done_and_what_to_do) {
  EXPECT_EQ(
      failed_text("the disk is full", standing),
      "launcher: the disk is full\n12 of 40 lines are answered in out.jsonl. The same command "
      "goes on\nlogs: out.jsonl.job/");
  EXPECT_EQ(stopped_text("the rest was not begun", standing),
            "launcher: stopped by a signal; the rest was not begun\n12 of 40 lines are answered in "
            "out.jsonl. The same command goes on");
}

TEST(ExitMessages, tell_earlier_runs_and_leave_an_unknown_total_out) {
  JobStanding other = standing;
  other.before = 5;
  other.total = 0;
  EXPECT_EQ(done_sentence(other), "12 lines are answered in out.jsonl (5 of them before this run)");
}

TEST(ExitMessages, say_what_to_change_after_too_many_failures) {
  JobStanding other = standing;
  other.too_many_failures = true;
  EXPECT_EQ(how_to_go_on(other),
            "The same command goes on, with a larger job.max_failures (--set "
            "job.max_failures=off: any number)");
}

TEST(ExitMessages, name_standard_output) {
  JobStanding other = standing;
  other.output = std::string("-");
  EXPECT_EQ(done_sentence(other), "12 of 40 lines are answered on standard output");
}

TEST(ExitMessages, know_commands_that_would_not_go_on) {
  JobStanding other = standing;
  other.mode = ResumeMode::overwrite;
  EXPECT_EQ(how_to_go_on(other), "The same command without --overwrite goes on");
  other.mode = ResumeMode::never;
  EXPECT_EQ(how_to_go_on(other), "The same command with --resume goes on");
  other.resumable = false;
  EXPECT_EQ(how_to_go_on(other),
            "This job cannot be gone on with: its input or its output is a pipe");
}

ActorDown loss(ActorId id, std::string name, DownCause cause, std::string message) {
  ActorDown down;
  down.id = id;
  down.name = std::move(name);
  down.node = "h2";
  down.cause = cause;
  down.message = std::move(message);
  return down;
}

TEST(ExitMessages, tell_the_cause_of_a_recovery_and_mark_what_follows_from_it) {
  EXPECT_EQ(describe(EngineRecovery{
                .lost = {loss(1, "worker-1", DownCause::exited, "worker-1 ended itself"),
                         loss(2, "worker-0", DownCause::signal, "worker-0 was killed"),
                         loss(3, "executor", DownCause::signal, "executor was killed")}}),
            "worker-0 was killed\nexecutor was killed; with it, as a consequence: 'worker-1'");
  EXPECT_EQ(describe(EngineRecovery{
                .lost = {loss(1, "worker-0", DownCause::node_lost, "the agent of 'h2' was killed"),
                         loss(2, "executor", DownCause::node_lost, "the agent of 'h2' again")}}),
            "the agent of 'h2' was killed; with it, as a consequence: 'executor'");
}

TEST(ExitMessages, show_the_last_lines_of_the_log_of_a_process_that_crashed) {
  ActorDown crashed = loss(1, "worker-0", DownCause::exited, "worker-0 ended itself");
  crashed.log_lines = {"step 7", "no \x1b[1mluck"};
  EXPECT_EQ(describe(EngineRecovery{.lost = {crashed}}),
            "worker-0 ended itself\nthe last lines of the log of 'worker-0':\n  step 7\n  no "
            "?[1mluck");
  EXPECT_EQ(describe_end(crashed),
            "worker-0 ended itself\nthe last lines of its log:\n  step 7\n  no ?[1mluck");
  ActorDown killed = loss(1, "worker-0", DownCause::signal, "worker-0 was killed");
  killed.code = 9;
  killed.log_lines = {"step 7"};
  EXPECT_EQ(describe(EngineRecovery{.lost = {killed}}), "worker-0 was killed")
      << "what was done to it is not in its log";
}

TEST(ExitMessages, tell_of_requests_that_a_recovery_gives_up) {
  EXPECT_EQ(
      describe(EngineRecovery{.lost = {loss(1, "worker-0", DownCause::signal, "worker-0 crashed")},
                              .given_up = {"a"}}),
      "worker-0 crashed; 1 request is given up, as processes crashed or hung again and again while "
      "they computed it");
}

TEST(ExitMessages, tell_of_requests_that_are_suspects) {
  EXPECT_EQ(
      describe(EngineRecovery{.lost = {loss(1, "worker-0", DownCause::signal, "worker-0 crashed")},
                              .suspects = 12}),
      "worker-0 crashed; 12 requests were under way in this crash and in the one before: such are "
      "computed one at a time, each until it is further than it was then");
}

}  // namespace
}  // namespace troupe
