#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/hosts/support/cluster_settings.hpp"
#include "tests/process/hosts/support/host_change.hpp"
#include "tests/process/hosts/support/host_processes.hpp"
#include "tests/process/hosts/support/joining_agent.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/process/launcher/support/topologies.hpp"
#include "tests/support/hosts/test_hosts.hpp"

// Nodes that come in place of lost ones are judged as those at the start.

namespace troupe::launcher_test {
namespace {

using ::testing::HasSubstr;

std::string hide(const std::filesystem::path& folder) {
  return "mount -t tmpfs none " + folder.string();
}
std::string show(const std::filesystem::path& folder) { return "umount " + folder.string(); }

class Replacement : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto missing = test::missing_hosts(); !missing.empty()) GTEST_SKIP() << missing;
    job_.emplace();
    job_->write_input(golden_input());
    write_token(job_->folder() / "job.token", 'a');
  }

  /// A job of two tensor ranks, one on each of two hosts, that has begun to answer.
  void start(std::vector<std::string> settings) {
    settings.emplace_back("parallel.tensor_parallel_size=2");
    settings.emplace_back("engine.max_num_seqs=8");
    running_ = job_->start(as_arguments(settings));
    ASSERT_TRUE(running_->wait_for_lines(job_->output(), 1, run_limit))
        << running_->wait(run_limit).describe();
  }
  /// The same with agents that join from h1 and h2.
  void start_joined() {
    for (const int host : {1, 2}) agents_.push_back(join(host));
    ASSERT_NO_FATAL_FAILURE(start(joined_by(2)));
  }
  std::unique_ptr<JoiningAgent> join(int host, const std::string& program = {}) {
    return std::make_unique<JoiningAgent>(*job_, host, "job.token", program);
  }
  static void kill_agent_of(const std::string& host) {
    int agent = 0;
    for (const char* worker : {"worker-0 on ", "worker-1 on "}) {
      if (agent == 0) agent = agent_with(worker + host);
    }
    ASSERT_NE(agent, 0);
    ASSERT_EQ(::kill(agent, SIGKILL), 0);
  }
  bool is_told(const std::string& text) { return running_->wait_for_stderr(text, run_limit); }
  void expect_all_answers(const Ended& ended) {
    ASSERT_EQ(ended.code, 0) << ended.describe() << job_->log();
    expect_same_payloads(answers_to(golden_input()), job_->answers(), "a job that lost a node");
  }

  std::optional<LauncherJob> job_;
  std::vector<std::unique_ptr<JoiningAgent>> agents_;
  std::unique_ptr<LauncherProcess> running_;
};

TEST_F(Replacement, that_joins_is_judged_and_the_wait_goes_on_after_those_that_are_refused) {
  ASSERT_NO_FATAL_FAILURE(start_joined());
  ASSERT_NO_FATAL_FAILURE(kill_agent_of("h2"));
  ASSERT_TRUE(
      is_told("for a node in place of 'h2'; on a node that is to take its place run:\n"
              "  launcher agent --join 10.77.0.254:7070 --token-file "))
      << job_->log();
  const auto of_another_build = join(3, std::filesystem::canonical("/proc/self/exe").string());
  EXPECT_EQ(of_another_build->wait(), 1);
  EXPECT_TRUE(is_told("is of another build")) << job_->log();
  {
    const test::HostChange gone(3, hide(demo_model()), show(demo_model()));
    const auto without_model = join(3);
    EXPECT_EQ(without_model->wait(), 2);
    EXPECT_THAT(without_model->log(), HasSubstr("this node is refused: there is no checkpoint in"));
    EXPECT_TRUE(is_told("refused h3: there is no checkpoint in")) << job_->log();
  }
  const auto good = join(3);
  const Ended ended = running_->wait(run_limit);
  expect_all_answers(ended);
  EXPECT_THAT(ended.err, HasSubstr("; the wait goes on"));
  EXPECT_THAT(ended.err, HasSubstr("'h3' takes the place of 'h2'"));
  EXPECT_THAT(good->log(), HasSubstr("worker-"));
}

TEST_F(Replacement, that_joins_before_the_loss_is_found_out_gets_the_place) {
  ASSERT_NO_FATAL_FAILURE(start_joined());
  const auto early = join(3);
  ASSERT_TRUE(running_->wait_for_text(job_->folder() / "out.jsonl.job" / "launcher.log",
                                      "an agent on h3 waits for a place", run_limit));
  ASSERT_NO_FATAL_FAILURE(kill_agent_of("h2"));
  expect_all_answers(running_->wait(run_limit));
  EXPECT_THAT(early->log(), HasSubstr("worker-"));
}

TEST_F(Replacement, gets_the_checkpoint_where_that_is_copied) {
  const test::HostChange hidden(3, hide(demo_model()), show(demo_model()));
  std::vector<std::unique_ptr<test::HostChange>> disks;
  for (const int host : {1, 2, 3}) {
    disks.push_back(std::make_unique<test::HostChange>(
        host, "mount -t tmpfs -o size=100m none /mnt", "umount /mnt"));
  }
  for (const int host : {1, 2}) agents_.push_back(join(host));
  std::vector<std::string> joined = joined_by(2);
  joined.emplace_back("model.stage=copy");
  joined.emplace_back("model.stage_folder=/mnt/copies");
  ASSERT_NO_FATAL_FAILURE(start(joined));
  ASSERT_NO_FATAL_FAILURE(kill_agent_of("h2"));
  ASSERT_TRUE(is_told("for a node in place of 'h2'")) << job_->log();
  const auto instead = join(3);
  expect_all_answers(running_->wait(run_limit));
  EXPECT_THAT(instead->log(), HasSubstr("worker-"));
  test::on_host(3, "ls /mnt/copies/fable-moe-*/config.json && ! test -L /mnt/copies/fable-moe-*");
}

TEST_F(Replacement, that_is_started_again_is_judged_as_well) {
  ASSERT_NO_FATAL_FAILURE(start(on_hosts(2, 1)));
  {
    const test::HostChange gone(2, hide(demo_model()), show(demo_model()));
    ASSERT_NO_FATAL_FAILURE(kill_agent_of("h2"));
    ASSERT_TRUE(is_told("refused h2: there is no checkpoint in")) << job_->log();
  }
  const Ended ended = running_->wait(run_limit);
  expect_all_answers(ended);
  EXPECT_THAT(ended.err, HasSubstr("'h2' takes the place of 'h2'"));
}

}  // namespace
}  // namespace troupe::launcher_test
