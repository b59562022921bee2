#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include "tests/process/hosts/support/cluster_settings.hpp"
#include "tests/process/hosts/support/host_processes.hpp"
#include "tests/process/hosts/support/joining_agent.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/process/launcher/support/topologies.hpp"
#include "tests/support/hosts/test_hosts.hpp"

// Jobs that go on with fewer replicas while nodes are missing, and with more once they are back.

namespace troupe::launcher_test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A batch that runs for some ten seconds on two workers.
std::string long_input() {
  std::string input;
  for (int i = 0; i < 400 / test::time_scale; ++i) {
    input += completion(fmt::format("tale-{}", i), fmt::format("Fable {}. The crow said,", i),
                        {{"temperature", 0.7}, {"ignore_eos", true}, {"max_tokens", 100}});
  }
  return input;
}

class Elastic : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto missing = test::missing_hosts(); !missing.empty()) GTEST_SKIP() << missing;
    write_token(job_.folder() / "job.token", 'a');
    ::setenv("XDG_STATE_HOME", (prints_.path() / "state").c_str(), 1);
  }
  void TearDown() override { ::unsetenv("XDG_STATE_HOME"); }

  /// A job of replicas that has begun to answer `input`.
  void start(const std::string& input, std::vector<std::string> settings, int replicas = 2) {
    input_ = input;
    job_.write_input(input_);
    settings.push_back(fmt::format("parallel.data_parallel_size={}", replicas));
    settings.insert(settings.begin(), "cluster.elastic=true");
    settings.emplace_back("engine.max_num_seqs=8");
    arguments_ = as_arguments(settings);
    running_ = job_.start(arguments_);
    ASSERT_TRUE(running_->wait_for_lines(job_.output(), 1, run_limit))
        << running_->wait(run_limit).describe();
  }
  std::unique_ptr<JoiningAgent> join(int host) {
    return std::make_unique<JoiningAgent>(job_, host, "job.token");
  }
  static void kill_agent_with(const std::string& worker) {
    const int agent = agent_with(worker);
    ASSERT_NE(agent, 0) << worker;
    ASSERT_EQ(::kill(agent, SIGKILL), 0);
  }
  std::string pid() const { return std::to_string(running_->pid()); }
  Ended command(const std::vector<std::string>& words) {
    return LauncherProcess(words, job_.folder(), prints_.path()).wait(run_limit);
  }
  /// `launcher drain` of the job's node.
  Ended drain(const std::string& node) { return command({"drain", pid(), node}); }
  bool is_told(const std::string& text, std::chrono::milliseconds limit = run_limit) {
    return running_->wait_for_stderr(text, limit);
  }
  void expect_all_answers(const Ended& ended) {
    ASSERT_EQ(ended.code, 0) << ended.describe() << job_.log();
    expect_same_payloads(answers_to(input_), job_.answers(), "an elastic job that lost nodes");
  }
  nlohmann::json report() const {
    return nlohmann::json::parse(
        golden::file_bytes(job_.folder() / "out.jsonl.job" / "report.json"));
  }
  nlohmann::json changes() const { return report().at("domain_changes"); }
  /// Whether the launcher has ended; it remains to be waited for.
  bool has_ended() const {
    siginfo_t info{};
    const auto pid = static_cast<id_t>(running_->pid());
    return ::waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
  }

  LauncherJob job_;
  golden::TemporaryFolder prints_;
  std::string input_;
  std::vector<std::string> arguments_;
  std::unique_ptr<LauncherProcess> running_;
};

TEST_F(Elastic, job_hands_the_requests_of_a_lost_host_to_the_other_replica) {
  ASSERT_NO_FATAL_FAILURE(start(golden_input(), on_hosts(2, 1)));
  test::set_link(2, false);
  const Ended ended = running_->wait(run_limit);
  test::set_link(2, true);
  ASSERT_NO_FATAL_FAILURE(expect_all_answers(ended));
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("step domain 1 on 'h2' is dropped: 1 of 2 step domains serve; its "),
                    HasSubstr("unanswered requests go to the others"),
                    HasSubstr("it comes back as soon as there is a node"),
                    Not(HasSubstr("waiting at most"))));
  const nlohmann::json found = changes();
  ASSERT_EQ(found.size(), 1U) << found;
  EXPECT_EQ(found[0].at("change"), "dropped");
  EXPECT_EQ(found[0].at("domain"), 1);
  EXPECT_GT(found[0].at("requests"), 0);
}

TEST_F(Elastic, job_takes_a_host_back_that_is_there_again) {
  ASSERT_NO_FATAL_FAILURE(start(long_input(), on_hosts(2, 1)));
  test::set_link(2, false);
  const bool is_dropped = is_told("step domain 1 on 'h2' is dropped");
  test::set_link(2, true);
  ASSERT_TRUE(is_dropped) << job_.log();
  ASSERT_TRUE(is_told("step domain 1 is back on 'h2' after")) << job_.log();
  // Only that one is left now, and finishes the batch.
  test::set_link(1, false);
  const Ended ended = running_->wait(run_limit);
  test::set_link(1, true);
  ASSERT_NO_FATAL_FAILURE(expect_all_answers(ended));
  EXPECT_THAT(ended.err, HasSubstr("step domain 0 on 'h1' is dropped: 1 of 2"));
}

TEST_F(Elastic, job_gives_a_dropped_replica_to_an_agent_that_joins) {
  std::vector<std::unique_ptr<JoiningAgent>> agents;
  for (const int host : {1, 2}) agents.push_back(join(host));
  ASSERT_NO_FATAL_FAILURE(start(long_input(), joined_by(2)));
  const std::string lost = process_named("worker-1 on h2") != 0 ? "h2" : "h1";
  ASSERT_NO_FATAL_FAILURE(kill_agent_with("worker-1 on " + lost));
  ASSERT_TRUE(is_told("step domain 1 on '" + lost + "' is dropped")) << job_.log();
  ASSERT_TRUE(is_told("on a node that is to take its place run:\n  launcher agent --join "));
  const auto began = std::chrono::steady_clock::now();
  agents.push_back(join(3));
  ASSERT_TRUE(is_told("step domain 1 is back on 'h3' after")) << job_.log();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  std::printf("back %.2f s after the start of its agent\n", took.count());
  EXPECT_LT(took, 5s * test::time_scale);
  ASSERT_NO_FATAL_FAILURE(kill_agent_with("worker-0 on "));
  expect_all_answers(running_->wait(run_limit));
  EXPECT_THAT(agents.back()->log(), HasSubstr("worker-1"));
}

TEST_F(Elastic, job_refuses_an_agent_of_another_build_and_goes_on) {
  std::vector<std::unique_ptr<JoiningAgent>> agents;
  for (const int host : {1, 2}) agents.push_back(join(host));
  ASSERT_NO_FATAL_FAILURE(start(long_input(), joined_by(2)));
  ASSERT_NO_FATAL_FAILURE(kill_agent_with("worker-1 on "));
  ASSERT_TRUE(is_told("is dropped: 1 of 2 step domains serve")) << job_.log();
  JoiningAgent other(job_, 3, "job.token", std::filesystem::canonical("/proc/self/exe").string());
  EXPECT_EQ(other.wait(), 1);
  EXPECT_TRUE(is_told("not taken: ")) << job_.log();
  const Ended ended = running_->wait(run_limit);
  expect_all_answers(ended);
  EXPECT_THAT(ended.err, HasSubstr("is of another build"));
}

TEST_F(Elastic, job_with_no_replica_left_waits_and_ends_resumable) {
  std::vector<std::string> settings = on_hosts(2, 1);
  settings.emplace_back("restart.wait_seconds=4");
  ASSERT_NO_FATAL_FAILURE(start(golden_input(), settings));
  test::set_link(1, false);
  test::set_link(2, false);
  const Ended ended = running_->wait(run_limit);
  test::set_link(1, true);
  test::set_link(2, true);
  ASSERT_EQ(ended.code, 3) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("within restart.wait_seconds (4)"));
  const Ended again = job_.run(arguments_);
  ASSERT_EQ(again.code, 0) << again.describe();
  expect_same_payloads(answers_to(golden_input()), job_.answers(), "a job that was gone on with");
}

TEST_F(Elastic, job_that_has_lost_all_hosts_goes_on_when_one_is_back) {
  ASSERT_NO_FATAL_FAILURE(start(golden_input(), on_hosts(2, 1)));
  test::set_link(1, false);
  test::set_link(2, false);
  const bool waits = is_told("restart.wait_seconds");
  test::set_link(2, true);
  const Ended ended = running_->wait(run_limit);
  test::set_link(1, true);
  ASSERT_TRUE(waits) << job_.log();
  expect_all_answers(ended);
}

TEST_F(Elastic, job_survives_links_that_are_cut_again_and_again) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  std::vector<std::string> settings = on_hosts(3, 1);
  settings.emplace_back("restart.max=100");
  ASSERT_NO_FATAL_FAILURE(start(long_input(), settings, 3));
  for (int i = 0; i < 5 && !has_ended(); ++i) {
    const int host = 1 + static_cast<int>(random() % 3);
    // The first cut is so long that the job must notice it.
    const unsigned shortest = i == 0 ? 4000U : 1000U;
    const auto cut = std::chrono::milliseconds(shortest + random() % (7000 - shortest));
    std::printf("h%d is cut off for %d ms\n", host, static_cast<int>(cut.count()));
    test::set_link(host, false);
    // The length of the cut is what this test varies.
    std::this_thread::sleep_for(cut);
    test::set_link(host, true);
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 3000));
  }
  ASSERT_NO_FATAL_FAILURE(expect_all_answers(running_->wait(2 * run_limit)));
  EXPECT_THAT(job_.log(), AnyOf(HasSubstr("recovered in "), HasSubstr("is dropped: ")))
      << "no loss was told";
}

TEST_F(Elastic, job_drops_all_replicas_that_share_experts_together) {
  std::vector<std::string> settings = on_hosts(2, 2);
  settings.emplace_back("parallel.expert_parallel_size=2");
  ASSERT_NO_FATAL_FAILURE(start(golden_input(), settings, 4));
  test::set_link(2, false);
  const Ended ended = running_->wait(run_limit);
  test::set_link(2, true);
  ASSERT_NO_FATAL_FAILURE(expect_all_answers(ended));
  EXPECT_THAT(ended.err, HasSubstr("step domain 1 on 'h2' is dropped: 1 of 2 step domains serve"));
}

TEST_F(Elastic, job_makes_one_replica_of_the_hosts_that_two_have_left) {
  std::vector<std::string> settings = on_hosts(4, 1);
  settings.emplace_back("parallel.pipeline_parallel_size=2");
  ASSERT_NO_FATAL_FAILURE(start(golden_input(), settings));
  test::set_link(2, false);
  test::set_link(3, false);
  const Ended ended = running_->wait(run_limit);
  test::set_link(2, true);
  test::set_link(3, true);
  ASSERT_NO_FATAL_FAILURE(expect_all_answers(ended));
  EXPECT_THAT(ended.err, HasSubstr("is dropped: "));
  const nlohmann::json found = changes();
  ASSERT_EQ(found.size(), 1U) << found;
  EXPECT_EQ(found[0].at("change"), "dropped");
  EXPECT_EQ(found[0].at("domains"), 2);
}

TEST_F(Elastic, job_lets_a_node_go_and_takes_another_one_in) {
  std::vector<std::unique_ptr<JoiningAgent>> agents;
  for (const int host : {1, 2}) agents.push_back(join(host));
  ASSERT_NO_FATAL_FAILURE(start(long_input(), joined_by(2)));
  const bool is_second = process_named("worker-1 on h2") != 0;
  const std::string node = is_second ? "h2" : "h1";
  const Ended unknown = drain("h9");
  EXPECT_EQ(unknown.code, 2) << unknown.describe();
  EXPECT_THAT(unknown.err, HasSubstr("no node is named 'h9'; there is "));
  const Ended drained = drain(node);
  ASSERT_EQ(drained.code, 0) << drained.describe();
  EXPECT_THAT(drained.out, HasSubstr("node '" + node +
                                     "' is drained; step domain 1 is dropped; 1 "
                                     "of 2 step domains serve"));
  EXPECT_EQ(agents[is_second ? 1 : 0]->wait(), 0) << "its agent ends in order";
  const Ended last = drain(is_second ? "h1" : "h2");
  EXPECT_EQ(last.code, 2) << last.describe();
  EXPECT_THAT(last.err, HasSubstr("no other step domain serves at the moment"));
  agents.push_back(join(3));
  ASSERT_TRUE(is_told("step domain 1 is back on 'h3' after")) << job_.log();
  const Ended ended = running_->wait(run_limit);
  expect_all_answers(ended);
  EXPECT_THAT(ended.err, HasSubstr("node '" + node + "' is drained"));
  EXPECT_THAT(job_.log(), Not(HasSubstr("the agent of node '" + node + "' is gone")));
  EXPECT_EQ(report().at("recoveries").at("count"), 0);
}

TEST_F(Elastic, job_takes_a_host_in_that_its_configuration_does_not_name) {
  ASSERT_NO_FATAL_FAILURE(start(long_input(), on_hosts(2, 1)));
  const Ended full = command({"join", pid(), "h3"});
  EXPECT_EQ(full.code, 2) << full.describe();
  EXPECT_THAT(full.err, HasSubstr("all 2 nodes are there"));
  const Ended drained = drain("h2");
  ASSERT_EQ(drained.code, 0) << drained.describe();
  const Ended joined = command({"join", pid(), "root@h3:22"});
  ASSERT_EQ(joined.code, 0) << joined.describe() << job_.log();
  EXPECT_THAT(joined.out, HasSubstr("h3 has come"));
  ASSERT_TRUE(is_told("step domain 1 is back on 'h3' after")) << job_.log();
  expect_all_answers(running_->wait(run_limit));
}

TEST_F(Elastic, job_takes_a_drained_node_back) {
  ASSERT_NO_FATAL_FAILURE(start(long_input(), on_hosts(2, 1)));
  const Ended drained = drain("h2");
  ASSERT_EQ(drained.code, 0) << drained.describe();
  const Ended joined = command({"join", pid()});
  ASSERT_EQ(joined.code, 0) << joined.describe() << job_.log();
  ASSERT_TRUE(is_told("step domain 1 is back on 'h2' after")) << job_.log();
  expect_all_answers(running_->wait(run_limit));
}

TEST_F(Elastic, job_moves_what_a_drained_node_had_to_a_spare_one) {
  std::vector<std::string> settings = on_hosts(3, 1);
  settings.emplace_back("cluster.spares=1");
  ASSERT_NO_FATAL_FAILURE(start(long_input(), settings));
  const Ended drained = drain("h2");
  ASSERT_EQ(drained.code, 0) << drained.describe();
  ASSERT_TRUE(is_told("step domain 1 is back on 'h3' after")) << job_.log();
  expect_all_answers(running_->wait(run_limit));
}

TEST_F(Elastic, job_alone_lets_a_node_with_workers_go) {
  ASSERT_NO_FATAL_FAILURE(start(golden_input(), {"cluster.elastic=false"}));
  const Ended drained = drain("node0");
  EXPECT_EQ(drained.code, 2) << drained.describe();
  EXPECT_THAT(drained.err, HasSubstr("that takes cluster.elastic: true"));
  expect_all_answers(running_->wait(run_limit));
}

TEST_F(Elastic, or_not_a_job_gives_the_ranks_of_a_lost_host_to_a_spare_one_at_once) {
  std::vector<std::string> settings = on_hosts(3, 1);
  settings.emplace_back("cluster.spares=1");
  settings.emplace_back("cluster.elastic=false");
  ASSERT_NO_FATAL_FAILURE(start(golden_input(), settings));
  EXPECT_EQ(process_named("worker-1 on h3"), 0);
  test::set_link(2, false);
  const Ended ended = running_->wait(run_limit);
  test::set_link(2, true);
  ASSERT_NO_FATAL_FAILURE(expect_all_answers(ended));
  EXPECT_THAT(job_.log("agent-h3"), HasSubstr("worker-1: "));
  EXPECT_THAT(job_.log(), Not(HasSubstr("waiting for a node")));
}

TEST_F(Elastic, job_needs_to_be_allowed_to_recover) {
  job_.write_input(golden_input());
  EXPECT_THAT(
      job_.run({"--set", "cluster.elastic=true", "--set", "restart.max=0"}).describe(),
      HasSubstr("cluster.elastic: a job that may drop replicas must be able to recover: set "
                "restart.max, say to 10"));
}

}  // namespace
}  // namespace troupe::launcher_test
