#include <csignal>
#include <cstring>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/launcher/support/launcher_job.hpp"

namespace troupe::launcher_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr milliseconds event_limit = seconds(30);
constexpr milliseconds end_limit = seconds(15);
constexpr std::size_t requests = 20'000;

/// Far more than can be answered during a test.
std::string long_input(int max_tokens) {
  std::string input;
  for (std::size_t i = 0; i < requests; ++i) {
    input += completion(fmt::format("r{}", i), {326, 369, 524},
                        {{"max_tokens", max_tokens}, {"ignore_eos", true}});
  }
  return input;
}

std::vector<std::string> two_ranks(const std::string& max_num_seqs) {
  return {"--set", "parallel.tensor_parallel_size=2", "--set",
          "engine.max_num_seqs=" + max_num_seqs};
}

/// Expects whole lines in the output, all of them successes, more than none, less than all.
void expect_part_of_the_answers(const LauncherJob& job, std::size_t least) {
  const Answers answers = job.answers();
  EXPECT_GE(answers.size(), least);
  EXPECT_LT(answers.size(), requests);
  for (const auto& [id, answer] : answers) EXPECT_TRUE(answer.ok()) << id << answer.record;
}

void expect_no_process(const LauncherJob& job, milliseconds limit) {
  EXPECT_THAT(processes_left_in(job.folder(), limit), IsEmpty());
}

TEST(Signals, of_one_kind_let_running_requests_finish_and_leave_whole_lines) {
  const std::string input = long_input(24);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) {
    SCOPED_TRACE(::strsignal(number));
    const LauncherJob job;
    job.write_input(input);
    const auto launcher = job.start(two_ranks("8"));
    ASSERT_TRUE(launcher->wait_for_lines(job.output(), 3, event_limit))
        << launcher->wait({}).describe();
    EXPECT_GE(processes_left_in(job.folder(), milliseconds(0)).size(), 4U)
        << "the look for processes does not see launcher, agent, executor and workers";
    if (number == SIGINT) {
      launcher->signal_group(SIGINT);
    } else {
      signal_processes_in(job.folder(), number);  // as a scheduler does
    }
    const Ended ended = launcher->wait(end_limit);
    EXPECT_TRUE(ended.in_time);
    EXPECT_EQ(ended.code, 4) << ended.describe();
    EXPECT_THAT(ended.err, HasSubstr("finishing the requests that run"));
    EXPECT_THAT(ended.err, HasSubstr("stopped by a signal; the requests that ran are finished"));
    expect_no_process(job, milliseconds(0));
    expect_part_of_the_answers(job, 8);
  }
}

TEST(Signals, let_running_requests_finish_on_stages_and_in_a_step_domain) {
  const std::string input = long_input(24);
  const std::vector<std::string> ways[] = {
      {"--set", "parallel.pipeline_parallel_size=4"},
      {"--set", "parallel.data_parallel_size=2", "--set", "parallel.pipeline_parallel_size=2",
       "--set", "parallel.expert_parallel_size=2"}};
  for (std::vector<std::string> arguments : ways) {
    const LauncherJob job;
    job.write_input(input);
    arguments.insert(arguments.end(), {"--set", "engine.max_num_seqs=8"});
    const auto launcher = job.start(arguments);
    ASSERT_TRUE(launcher->wait_for_lines(job.output(), 3, event_limit))
        << launcher->wait({}).describe();
    launcher->signal_group(SIGINT);
    const Ended ended = launcher->wait(end_limit);
    EXPECT_TRUE(ended.in_time);
    EXPECT_EQ(ended.code, 4) << ended.describe();
    expect_no_process(job, milliseconds(0));
    expect_part_of_the_answers(job, 8);
  }
}

TEST(Signals, given_twice_end_the_job_at_once) {
  const LauncherJob job;
  job.write_input(completion("short", {326, 369}, {{"max_tokens", 1}}) + long_input(2000));
  const auto launcher = job.start(two_ranks("64"));
  ASSERT_TRUE(launcher->wait_for_lines(job.output(), 1, event_limit))
      << launcher->wait({}).describe();
  launcher->signal_group(SIGINT);
  ASSERT_TRUE(launcher->wait_for_stderr("Ctrl-C again to stop at once", event_limit));
  launcher->signal_group(SIGINT);
  const Ended ended = launcher->wait(seconds(5));
  EXPECT_TRUE(ended.in_time);
  EXPECT_EQ(ended.code, 130) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("it came twice"));
  expect_no_process(job, seconds(3));
  expect_part_of_the_answers(job, 1);
}

TEST(Signals, before_the_first_answer_end_the_job_without_one) {
  const LauncherJob job;
  job.write_input(long_input(24));
  const auto launcher = job.start(two_ranks("8"));
  ASSERT_TRUE(launcher->wait_for_file(job.folder() / "out.jsonl.job/launcher.log", event_limit));
  launcher->signal_group(SIGINT);
  const Ended ended = launcher->wait(end_limit);
  EXPECT_EQ(ended.code, 4) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("launcher: stopped"));
  expect_no_process(job, milliseconds(0));
  expect_part_of_the_answers(job, 0);
}

TEST(Signals, do_not_lose_the_output_for_a_later_run) {
  const LauncherJob job;
  job.write_input(long_input(24));
  {
    const auto launcher = job.start(two_ranks("8"));
    ASSERT_TRUE(launcher->wait_for_lines(job.output(), 1, event_limit))
        << launcher->wait({}).describe();
    launcher->signal(SIGTERM);
    EXPECT_EQ(launcher->wait(end_limit).code, 4);
  }
  const std::string kept = golden::file_bytes(job.output());
  const Ended again = job.run({"--resume=never"});
  EXPECT_EQ(again.code, 2) << again.describe();
  EXPECT_EQ(golden::file_bytes(job.output()), kept);
}

TEST(Killing, the_launcher_leaves_whole_lines_and_no_process) {
  const LauncherJob job;
  job.write_input(long_input(24));
  const auto launcher = job.start(two_ranks("8"));
  ASSERT_TRUE(launcher->wait_for_lines(job.output(), 3, event_limit))
      << launcher->wait({}).describe();
  launcher->signal(SIGKILL);
  EXPECT_EQ(launcher->wait(end_limit).code, 128 + SIGKILL);
  expect_no_process(job, seconds(10));
  expect_part_of_the_answers(job, 3);
}

TEST(SecondRun, at_the_same_time_on_the_same_output_is_refused_and_does_no_harm) {
  const LauncherJob job;
  job.write_input(long_input(24));
  const auto first = job.start(two_ranks("8"));
  ASSERT_TRUE(first->wait_for_lines(job.output(), 1, event_limit)) << first->wait({}).describe();
  const golden::TemporaryFolder prints;
  for (const bool overwrite : {false, true}) {
    std::vector<std::string> arguments = {"--config", "cluster.yaml"};
    if (overwrite) arguments.push_back("--overwrite");
    const Ended second = LauncherProcess(arguments, job.folder(), prints.path()).wait(seconds(10));
    EXPECT_EQ(second.code, 2) << second.describe();
    EXPECT_THAT(second.err, HasSubstr("another process is writing the output out.jsonl (pid "));
  }
  EXPECT_GT(job.first_token_ms(), 0) << "the second run touched the first one's log";
  first->signal(SIGINT);
  const Ended ended = first->wait(end_limit);
  EXPECT_EQ(ended.code, 4) << ended.describe();
  expect_part_of_the_answers(job, 8);
}

}  // namespace
}  // namespace troupe::launcher_test
