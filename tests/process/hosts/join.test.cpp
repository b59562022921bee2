#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "tests/process/hosts/support/cluster_settings.hpp"
#include "tests/process/hosts/support/host_change.hpp"
#include "tests/process/hosts/support/joining_agent.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/process/launcher/support/topologies.hpp"
#include "tests/support/hosts/test_hosts.hpp"

namespace troupe::launcher_test {
namespace {

using ::testing::HasSubstr;

class Join : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto missing = test::missing_hosts(); !missing.empty()) GTEST_SKIP() << missing;
    job_.emplace();
    job_->write_input(golden_input());
  }
  const LauncherJob& job() const { return *job_; }

 private:
  std::optional<LauncherJob> job_;
};

TEST_F(Join, of_two_nodes_gives_the_bytes_of_one_worker) {
  write_token(job().folder() / "job.token", 'a');
  JoiningAgent first(job(), 1, "job.token");  // before there is a launcher
  std::vector<std::string> arguments = as_arguments(joined_by(2));
  arguments.insert(arguments.end(), {"--set", "parallel.pipeline_parallel_size=2"});
  const auto running = job().start(arguments);
  ASSERT_TRUE(running->wait_for_stderr("1 of 2 nodes have joined: h1", run_limit))
      << running->wait(run_limit).describe();
  JoiningAgent second(job(), 2, "job.token");
  const Ended ended = running->wait(run_limit);
  ASSERT_EQ(ended.code, 0) << ended.describe() << first.log() << second.log();
  EXPECT_THAT(ended.err, HasSubstr("launcher agent --join 10.77.0.254:7070 --token-file " +
                                   (job().folder() / "job.token").string()));
  EXPECT_THAT(ended.err, HasSubstr("2 of 2 nodes have joined: h1, h2"));
  expect_same_payloads(answers_to(golden_input()), job().answers(), "pp2 on two nodes that joined");
  for (JoiningAgent* agent : {&first, &second}) {
    EXPECT_EQ(agent->wait(), 0) << agent->log();
    EXPECT_THAT(agent->log(), HasSubstr("worker-"));
  }
}

TEST_F(Join, of_two_agents_on_one_host_makes_two_nodes_with_names_of_their_own) {
  write_token(job().folder() / "job.token", 'a');
  std::filesystem::copy(job().folder() / "job.token", job().folder() / "copy.token");
  JoiningAgent first(job(), 1, "job.token"), second(job(), 1, "copy.token");
  std::vector<std::string> arguments = as_arguments(joined_by(2));
  arguments.insert(arguments.end(), {"--set", "parallel.tensor_parallel_size=2"});
  const Ended ended = job().run(arguments);
  ASSERT_EQ(ended.code, 0) << ended.describe() << first.log() << second.log();
  EXPECT_THAT(ended.err, HasSubstr("2 of 2 nodes have joined: h1, h1-2"));
  expect_same_payloads(answers_to(golden_input()), job().answers(), "tp2 over two nodes");
}

TEST_F(Join, is_asked_for_by_a_command_that_runs_in_any_folder) {
  std::vector<std::string> arguments = joined_by(1, 60);
  arguments[1] = "cluster.listen=hosts:0";  // the interface of own_address
  arguments[3] = "cluster.token_file=the token";
  const auto running = job().start(as_arguments(arguments));
  ASSERT_TRUE(running->wait_for_stderr("--token-file '" + job().folder().string() + "/the token'",
                                       run_limit));
  running->signal(SIGINT);
  const Ended ended = running->wait(run_limit);
  EXPECT_EQ(ended.code, 4) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("--join 10.77.0.254:"));
}

TEST_F(Join, is_not_waited_for_by_a_bench_that_is_stopped) {
  std::vector<std::string> arguments = {"bench", "latency", "--config", "cluster.yaml"};
  for (auto& word : as_arguments(joined_by(1, 60))) arguments.push_back(word);
  LauncherProcess bench(arguments, job().folder(), job().folder() / "..");
  ASSERT_TRUE(bench.wait_for_stderr("waiting for 1 node", run_limit));
  bench.signal(SIGINT);
  const Ended ended = bench.wait(std::chrono::seconds(10));
  EXPECT_EQ(ended.code, 4) << ended.describe();
}

TEST_F(Join, goes_on_after_ctrl_z_and_fg_as_if_no_time_had_passed) {
  constexpr auto timeout = std::chrono::seconds(8) * test::time_scale;
  write_token(job().folder() / "job.token", 'a');
  JoiningAgent first(job(), 1, "job.token");
  std::vector<std::string> settings = joined_by(2, std::chrono::duration<double>(timeout).count());
  settings.emplace_back("parallel.pipeline_parallel_size=2");
  const auto running = job().start(as_arguments(settings));
  ASSERT_TRUE(running->wait_for_stderr("1 of 2 nodes have joined: h1", run_limit))
      << running->wait(run_limit).describe();
  running->signal_group(SIGTSTP);
  siginfo_t stopped{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(running->pid()), &stopped, WSTOPPED | WEXITED), 0);
  ASSERT_EQ(stopped.si_code, CLD_STOPPED);
  std::this_thread::sleep_for(timeout);  // the time that does not count
  running->signal_group(SIGCONT);
  JoiningAgent second(job(), 2, "job.token");
  const Ended ended = running->wait(run_limit);
  ASSERT_EQ(ended.code, 0) << ended.describe() << first.log() << second.log();
  EXPECT_THAT(ended.err, HasSubstr("2 of 2 nodes have joined: h1, h2"));
  expect_same_payloads(answers_to(golden_input()), job().answers(), "a join that was stopped");
}

TEST_F(Join, with_another_token_is_refused_on_both_sides) {
  write_token(job().folder() / "job.token", 'a');
  write_token(job().folder() / "other.token", 'b');
  const auto running = job().start(as_arguments(joined_by(1, 4)));
  ASSERT_TRUE(running->wait_for_stderr("waiting for 1 node", run_limit));
  JoiningAgent agent(job(), 1, "other.token");
  EXPECT_EQ(agent.wait(), 2);
  EXPECT_THAT(agent.log(), HasSubstr("token or ticket of another job?"));
  const Ended ended = running->wait(run_limit);
  EXPECT_EQ(ended.code, 3) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("0 of 1 nodes have joined within 4 s"));
}

TEST_F(Join, of_another_build_is_refused_on_both_sides) {
  write_token(job().folder() / "job.token", 'a');
  const auto running = job().start(as_arguments(joined_by(1, 4)));
  ASSERT_TRUE(running->wait_for_stderr("waiting for 1 node", run_limit));
  JoiningAgent agent(job(), 1, "job.token", std::filesystem::canonical("/proc/self/exe").string());
  EXPECT_EQ(agent.wait(), 1);
  EXPECT_THAT(agent.log(), HasSubstr("is of another build"));
  const Ended ended = running->wait(run_limit);
  EXPECT_EQ(ended.code, 3) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("is of another build"));
}

TEST_F(Join, of_one_node_too_many_is_refused_and_harms_nobody) {
  write_token(job().folder() / "job.token", 'a');
  JoiningAgent first(job(), 1, "job.token"), second(job(), 2, "job.token");
  const auto running = job().start(as_arguments(joined_by(1)));
  const int codes[] = {first.wait(), second.wait()};
  const Ended ended = running->wait(run_limit);
  EXPECT_EQ(ended.code, 0) << ended.describe();
  EXPECT_THAT(codes, ::testing::UnorderedElementsAre(0, 2)) << first.log() << second.log();
  EXPECT_THAT(first.log() + second.log(), HasSubstr("this job has all of its 1 nodes"));
}

TEST_F(Join, of_a_node_that_cannot_take_part_is_refused_at_once_and_another_takes_its_place) {
  const std::string model = demo_model();
  const test::HostChange gone(1, "mount -t tmpfs none " + model, "umount " + model);
  write_token(job().folder() / "job.token", 'a');
  std::vector<std::string> settings = joined_by(2);
  settings.emplace_back("parallel.pipeline_parallel_size=2");
  const auto running = job().start(as_arguments(settings));
  JoiningAgent good(job(), 2, "job.token");
  ASSERT_TRUE(running->wait_for_stderr("1 of 2 nodes have joined: h2", run_limit))
      << running->wait(run_limit).describe();
  {
    JoiningAgent bad(job(), 1, "job.token");
    EXPECT_EQ(bad.wait(), 2) << "while the launcher waits";
    EXPECT_THAT(bad.log(), HasSubstr("this node is refused: there is no checkpoint in"));
    EXPECT_THAT(bad.log(), HasSubstr("copy the launcher's there"));
  }
  ASSERT_TRUE(running->wait_for_stderr("refused h1: there is no checkpoint in", run_limit));
  JoiningAgent instead(job(), 3, "job.token");
  const Ended ended = running->wait(run_limit);
  ASSERT_EQ(ended.code, 0) << ended.describe() << good.log() << instead.log();
  EXPECT_THAT(ended.err, HasSubstr("2 of 2 nodes have joined: h2, h3"));
  expect_same_payloads(answers_to(golden_input()), job().answers(), "after a node was refused");
}

TEST_F(Join, with_a_token_that_others_can_read_is_refused_on_both_sides) {
  write_token(job().folder() / "job.token", 'a', false);
  const Ended ended = job().run(as_arguments(joined_by(1)));
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("cluster.token_file: others can read"));
  JoiningAgent agent(job(), 1, "job.token");
  EXPECT_EQ(agent.wait(), 2);
  EXPECT_THAT(agent.log(), HasSubstr("others can read"));
}

TEST_F(Join, makes_the_token_when_there_is_none_and_stops_waiting_at_a_signal) {
  const auto running = job().start(as_arguments(joined_by(1)));
  ASSERT_TRUE(running->wait_for_stderr("waiting for 1 node", run_limit));
  const auto token = std::filesystem::status(job().folder() / "job.token");
  EXPECT_EQ(token.permissions(), std::filesystem::perms(0600));
  running->signal(SIGINT);
  const Ended ended = running->wait(run_limit);
  EXPECT_EQ(ended.code, 4) << ended.describe();
  EXPECT_LT(ended.seconds, 10);
}

TEST_F(Join, says_which_keys_are_missing_or_too_many) {
  EXPECT_THAT(job().run({"--set", "cluster.launch=join"}).describe(),
              HasSubstr("cluster.listen: nodes that join (cluster.launch: join) need it"));
  EXPECT_THAT(job().run({"--set", "cluster.nodes=2"}).describe(),
              HasSubstr("cluster.nodes: this is for nodes that join"));
}

}  // namespace
}  // namespace troupe::launcher_test
