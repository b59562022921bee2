#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/hosts/support/host_job.hpp"

// Hosts of a job fail, and the job goes on by itself on those that are left or come back.

namespace troupe::launcher_test {
namespace {

using namespace std::chrono_literals;
using test::CutLink;
using ::testing::HasSubstr;

class HostSurvival : public HostJob {
 protected:
  /// Two ranks of `kind` on the first two of `hosts` hosts, and `more`; waits for an answer.
  void start(int hosts, std::vector<std::string> more = {}, const std::string& kind = "tensor") {
    for (const std::string& setting : on_hosts(hosts, 1)) more.push_back(setting);
    more.push_back("parallel." + kind + "_parallel_size=2");
    HostJob::start(golden_input(), std::move(more));
  }

  void expect_recovered(const Ended& ended) const {
    ASSERT_NO_FATAL_FAILURE(expect_all_answers(ended));
    EXPECT_THAT(job_.log(), HasSubstr("recovered in"));
  }
};

TEST_F(HostSurvival, of_a_killed_agent_starts_it_again_where_it_was) {
  ASSERT_NO_FATAL_FAILURE(start(2));
  ASSERT_NO_FATAL_FAILURE(kill_agent_with("worker-1 on h2"));
  const Ended ended = wait();
  expect_recovered(ended);
  EXPECT_THAT(ended.err, HasSubstr("the agent of 'h2'"));
  EXPECT_THAT(ended.err, HasSubstr("worker-1"));
}

TEST_F(HostSurvival, of_the_host_with_the_executor_starts_all_again) {
  ASSERT_NO_FATAL_FAILURE(start(2));
  ASSERT_NO_FATAL_FAILURE(kill_agent_with("executor on h1"));
  expect_recovered(wait());
}

TEST_F(HostSurvival, of_a_host_that_is_gone_goes_on_on_one_with_room) {
  ASSERT_NO_FATAL_FAILURE(start(3));
  const CutLink cut(2);
  expect_recovered(wait());
  EXPECT_THAT(job_.log("agent-h3"), HasSubstr("worker-1: "));
}

TEST_F(HostSurvival, of_a_host_that_is_back_later_waits_for_it) {
  ASSERT_NO_FATAL_FAILURE(start(2));
  CutLink cut(2);
  ASSERT_TRUE(is_logged("waiting for a node")) << job_.log();
  ASSERT_TRUE(
      is_told("waiting at most 5:00 (restart.wait_seconds) for a node in place of 'h2'; its agent "
              "is started again every 2 s"))
      << job_.log();
  cut.mend();
  const Ended ended = wait();
  expect_recovered(ended);
  EXPECT_THAT(ended.err, HasSubstr("s: 'h2' takes the place of 'h2'"));
}

TEST_F(HostSurvival, of_a_replica_does_not_wait_for_the_host_of_another_one) {
  ASSERT_NO_FATAL_FAILURE(start(2, {}, "data"));
  CutLink cut(2);
  ASSERT_TRUE(is_logged("waiting for a node")) << job_.log();
  const int worker = process_named("worker-0 on h1");
  ASSERT_NE(worker, 0);
  ASSERT_EQ(::kill(worker, SIGKILL), 0);
  ASSERT_TRUE(is_logged("recovered in")) << job_.log();
  cut.mend();
  expect_recovered(wait());
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
  (void)wait();
  expect_all_answers(job_.run(arguments_));
}

TEST_F(HostSurvival, ends_resumable_if_no_host_takes_the_place_of_a_lost_one) {
  ASSERT_NO_FATAL_FAILURE(start(2, {"restart.wait_seconds=3"}));
  CutLink cut(2);
  const Ended ended = wait();
  cut.mend();
  EXPECT_THAT(ended.err, HasSubstr("the agent of 'h2'"));
  EXPECT_THAT(ended.err, HasSubstr("no node took its place within restart.wait_seconds (3)"));
  expect_goes_on(ended);
}

}  // namespace
}  // namespace troupe::launcher_test
