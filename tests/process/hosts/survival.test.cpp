#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/hosts/support/cluster_settings.hpp"
#include "tests/process/hosts/support/host_processes.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/process/launcher/support/topologies.hpp"
#include "tests/support/hosts/test_hosts.hpp"

// Hosts of a job fail, and the job goes on by itself on those that are left or come back.

namespace troupe::launcher_test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class HostSurvival : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto missing = test::missing_hosts(); !missing.empty()) GTEST_SKIP() << missing;
    job_.write_input(golden_input());
  }

  /// Two ranks of `kind` on the first two of `hosts` hosts, and `more`; waits for an answer.
  void start(int hosts, std::vector<std::string> more = {}, const std::string& kind = "tensor") {
    for (const std::string& setting : on_hosts(hosts, 1)) more.push_back(setting);
    more.push_back("parallel." + kind + "_parallel_size=2");
    more.emplace_back("engine.max_num_seqs=8");
    arguments_ = as_arguments(more);
    running_ = job_.start(arguments_);
    ASSERT_TRUE(running_->wait_for_lines(job_.output(), 1, run_limit))
        << running_->wait(run_limit).describe();
  }

  void expect_all_answers(const Ended& ended) {
    ASSERT_EQ(ended.code, 0) << ended.describe() << job_.log();
    expect_same_payloads(answers_to(golden_input()), job_.answers(), "a job that lost a host");
    EXPECT_THAT(job_.log(), HasSubstr("recovered in"));
  }

  LauncherJob job_;
  std::vector<std::string> arguments_;
  std::unique_ptr<LauncherProcess> running_;
};

TEST_F(HostSurvival, of_a_killed_agent_starts_it_again_where_it_was) {
  ASSERT_NO_FATAL_FAILURE(start(2));
  const int agent = agent_with("worker-1 on h2");
  ASSERT_NE(agent, 0);
  ASSERT_EQ(::kill(agent, SIGKILL), 0);
  const Ended ended = running_->wait(run_limit);
  expect_all_answers(ended);
  EXPECT_THAT(ended.err, HasSubstr("the agent of 'h2'"));
  EXPECT_THAT(ended.err, HasSubstr("worker-1"));
}

TEST_F(HostSurvival, of_the_host_with_the_executor_starts_all_again) {
  ASSERT_NO_FATAL_FAILURE(start(2));
  const int agent = agent_with("executor on h1");
  ASSERT_NE(agent, 0);
  ASSERT_EQ(::kill(agent, SIGKILL), 0);
  expect_all_answers(running_->wait(run_limit));
}

TEST_F(HostSurvival, of_a_host_that_is_gone_goes_on_on_one_with_room) {
  ASSERT_NO_FATAL_FAILURE(start(3));
  test::set_link(2, false);
  const Ended ended = running_->wait(run_limit);
  test::set_link(2, true);
  expect_all_answers(ended);
  EXPECT_THAT(job_.log("agent-h3"), HasSubstr("worker-1: "));
}

TEST_F(HostSurvival, of_a_host_that_is_back_later_waits_for_it) {
  ASSERT_NO_FATAL_FAILURE(start(2));
  test::set_link(2, false);
  ASSERT_TRUE(running_->wait_for_text(job_.folder() / "out.jsonl.job" / "launcher.log",
                                      "waiting for a node", run_limit))
      << job_.log();
  ASSERT_TRUE(
      running_->wait_for_stderr("waiting at most 5:00 (restart.wait_seconds) for a node in "
                                "place of 'h2'; its agent is started again every 2 s",
                                run_limit))
      << job_.log();
  test::set_link(2, true);
  const Ended ended = running_->wait(run_limit);
  expect_all_answers(ended);
  EXPECT_THAT(ended.err, HasSubstr("s: 'h2' takes the place of 'h2'"));
}

TEST_F(HostSurvival, of_a_replica_does_not_wait_for_the_host_of_another_one) {
  ASSERT_NO_FATAL_FAILURE(start(2, {}, "data"));
  const auto log = job_.folder() / "out.jsonl.job" / "launcher.log";
  test::set_link(2, false);
  const bool waits = running_->wait_for_text(log, "waiting for a node", run_limit);
  const int worker = process_named("worker-0 on h1");
  const bool is_killed = worker != 0 && ::kill(worker, SIGKILL) == 0;
  const bool recovers = running_->wait_for_text(log, "recovered in", run_limit);
  test::set_link(2, true);
  ASSERT_TRUE(waits && is_killed && recovers) << job_.log();
  expect_all_answers(running_->wait(run_limit));
}

TEST_F(HostSurvival,
       of_a_killed_launcher_ends_all_processes_on_all_hosts_and_goes_on_when_it_is_run_again) {
  ASSERT_NO_FATAL_FAILURE(start(2));
  const auto killed = std::chrono::steady_clock::now();
  running_->signal(SIGKILL);
  EXPECT_THAT(processes_left_in(job_.folder(), 2s * test::time_scale), ::testing::ElementsAre());
  std::printf(
      "driver killed: all processes of two hosts gone after %.0f ms (at most 2000)\n",
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - killed).count());
  (void)running_->wait(run_limit);
  const Ended again = job_.run(arguments_);
  ASSERT_EQ(again.code, 0) << again.describe();
  expect_same_payloads(answers_to(golden_input()), job_.answers(),
                       "a job whose launcher was killed");
}

TEST_F(HostSurvival, ends_resumable_if_no_host_takes_the_place_of_a_lost_one) {
  ASSERT_NO_FATAL_FAILURE(start(2, {"restart.wait_seconds=3"}));
  test::set_link(2, false);
  const Ended ended = running_->wait(run_limit);
  test::set_link(2, true);
  ASSERT_EQ(ended.code, 3) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("the agent of 'h2'"));
  EXPECT_THAT(ended.err, HasSubstr("no node took its place within restart.wait_seconds (3)"));
  const Ended again = job_.run(arguments_);
  ASSERT_EQ(again.code, 0) << again.describe();
  expect_same_payloads(answers_to(golden_input()), job_.answers(), "a job that was gone on with");
}

}  // namespace
}  // namespace troupe::launcher_test
