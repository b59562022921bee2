#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/process/hosts/support/host_job.hpp"
#include "tests/support/hosts/test_hosts.hpp"

// Jobs that begin with fewer nodes than their replicas need, and grow as nodes join.

namespace troupe::launcher_test {
namespace {

using namespace std::chrono_literals;
using test::CutLink;
using ::testing::HasSubstr;
using ::testing::Not;

/// Many more than one replica is given at once, and so much work for one that nodes join long
/// before its end, also where Slurm needs seconds to start a second allocation.
std::string some_tales() { return tales(1600, 24); }

/// Values of --set for an elastic job of replicas, one for each node.
std::vector<std::string> replicas(int count, std::vector<std::string> settings) {
  settings.emplace_back("cluster.elastic=true");
  settings.push_back(fmt::format("parallel.data_parallel_size={}", count));
  return settings;
}

/// The domains on these nodes, and no others, gave a first answer so soon after the agents had
/// connected.
void expect_first_answers(const nlohmann::json& changes, const std::set<std::string>& nodes) {
  std::set<std::string> found;
  for (const auto& [node, took] : first_answers(changes)) {
    EXPECT_LE(took, 5s * test::time_scale);
    found.insert(node);
  }
  EXPECT_EQ(found, nodes) << changes;
}

class Growth : public HostJob {};

TEST_F(Growth, of_a_job_with_one_of_three_hosts_takes_two_more_in) {
  ASSERT_NO_FATAL_FAILURE(start(some_tales(), replicas(3, on_hosts(1, 1))));
  ASSERT_TRUE(
      is_told("1 of 3 step domains serve; the others have no node yet, and come as soon as "
              "there are some; `launcher join batch HOST...` takes hosts in"))
      << job_.log();
  const Ended before = command({"nodes", pid()});
  EXPECT_THAT(before.out, HasSubstr("later-2")) << before.describe();
  EXPECT_THAT(before.out, HasSubstr("awaited"));
  const Ended joined = command({"join", pid(), "h2", "h3"});
  ASSERT_EQ(joined.code, 0) << joined.describe() << job_.log();
  EXPECT_THAT(joined.out, HasSubstr("h2, h3 have come"));
  for (const char* node : {"h2", "h3"}) {
    ASSERT_TRUE(is_told(fmt::format(" serves on '{}', ", node))) << job_.log();
  }
  const Ended full = command({"join", pid(), "h4"});
  EXPECT_THAT(full.err, HasSubstr("all 3 nodes are there")) << full.describe();
  const Ended ended = wait(2 * run_limit);
  ASSERT_NO_FATAL_FAILURE(expect_all_answers(ended));
  EXPECT_THAT(ended.err, HasSubstr("3 of 3 step domains serve"));
  const nlohmann::json found = changes();
  EXPECT_EQ(found[0].at("change"), "awaited") << found;
  EXPECT_EQ(found[0].at("domain"), 1);
  EXPECT_EQ(found[0].at("serving"), 1);
  expect_first_answers(changes(), {"h2", "h3"});
}

TEST_F(Growth, of_a_job_of_nodes_that_join_needs_no_command) {
  let_join(1);
  std::vector<std::string> settings = joined_by(1);
  settings.emplace_back("cluster.devices_per_node=1");
  ASSERT_NO_FATAL_FAILURE(start(some_tales(), replicas(3, settings)));
  ASSERT_TRUE(is_told("on a node that is to join run:\n  launcher agent --join ")) << job_.log();
  std::vector<std::string> words{"join", pid()};
  for (int i = 0; i < 200; ++i) words.push_back(fmt::format("host-{}.of-a-large-cluster", i));
  const Ended asked = command(words);
  EXPECT_EQ(asked.code, 0) << asked.describe();
  EXPECT_THAT(asked.out, HasSubstr("on each node that is to join run:\n  launcher agent --join " +
                                   std::string(listen_at) + " --token-file "));
  for (const int host : {2, 3}) let_join(host);
  for (const char* node : {"h2", "h3"}) {
    ASSERT_TRUE(is_told(fmt::format(" serves on '{}', ", node))) << job_.log();
  }
  ASSERT_NO_FATAL_FAILURE(expect_all_answers(wait(2 * run_limit)));
  expect_first_answers(changes(), {"h2", "h3"});
}

TEST_F(Growth, takes_nodes_in_that_come_before_the_others_are_looked_at) {
  std::vector<std::string> settings = joined_by(1);
  settings.emplace_back("cluster.devices_per_node=1");
  for (const int host : {1, 2, 3}) let_join(host);
  ASSERT_NO_FATAL_FAILURE(start(some_tales(), replicas(3, settings)));
  ASSERT_TRUE(is_told("3 of 3 step domains serve")) << job_.log();
  expect_all_answers(wait(2 * run_limit));
}

TEST_F(Growth, ends_resumable_if_the_only_node_is_lost_and_none_comes) {
  std::vector<std::string> settings = replicas(2, on_hosts(1, 1));
  settings.emplace_back("restart.wait_seconds=3");
  ASSERT_NO_FATAL_FAILURE(start(golden_input(), settings));
  CutLink cut(1);
  const Ended ended = wait();
  cut.mend();
  EXPECT_THAT(ended.err, HasSubstr("within restart.wait_seconds (3)"));
  expect_goes_on(ended);
}

TEST_F(Growth, is_told_by_check) {
  job_.write_input(golden_input());
  std::vector<std::string> arguments = as_arguments(replicas(3, on_hosts(1, 1)));
  arguments.insert(arguments.begin(), "check");
  const Ended ended = job_.run(arguments);
  EXPECT_EQ(ended.code, 0) << ended.describe();
  EXPECT_THAT(ended.out, HasSubstr("warning: the job begins with 1 of 3 step domains; the others "
                                   "serve when 2 more nodes join (later-1, ...)"));
  EXPECT_THAT(ended.out, HasSubstr("1 node looked at in"));
}

TEST_F(Growth, needs_a_node_for_one_replica_at_least_and_leaves_none_to_spare) {
  job_.write_input(golden_input());
  std::vector<std::string> large = replicas(2, on_hosts(1, 1));
  large.emplace_back("parallel.pipeline_parallel_size=2");
  EXPECT_THAT(job_.run(as_arguments(large)).describe(),
              HasSubstr("cluster.devices_per_node: an elastic job begins with one of its 2 step "
                        "domains at least, which is 2 workers, but the node takes 1"));
  std::vector<std::string> spare = replicas(3, on_hosts(2, 1));
  spare.emplace_back("cluster.spares=1");
  EXPECT_THAT(job_.run(as_arguments(spare)).describe(), HasSubstr("so none is to spare"));
  std::vector<std::string> rigid = on_hosts(1, 1);
  rigid.emplace_back("parallel.data_parallel_size=3");
  EXPECT_THAT(job_.run(as_arguments(rigid)).describe(), HasSubstr("but the node takes 1"));
}

TEST_F(Growth, or_not_two_lost_nodes_are_replaced_by_two_that_join_at_once) {
  ASSERT_NO_FATAL_FAILURE(start(long_input(), replicas(3, on_hosts(3, 1))));
  const CutLink second(2), third(3);
  ASSERT_TRUE(is_told("is dropped: 1 of 3 step domains serve")) << job_.log();
  const Ended joined = command({"join", pid(), "h4", "h5"});
  ASSERT_EQ(joined.code, 0) << joined.describe() << job_.log();
  EXPECT_THAT(joined.out, HasSubstr("h4, h5 have come"));
  for (const char* node : {"h4", "h5"}) {
    ASSERT_TRUE(is_told(fmt::format(" is back on '{}' after", node))) << job_.log();
  }
}

TEST_F(Growth, by_a_host_that_does_not_answer_holds_up_neither_status_nor_the_end) {
  ASSERT_NO_FATAL_FAILURE(start(some_tales(), replicas(2, on_hosts(1, 1))));
  const CutLink cut(2);
  std::filesystem::create_directory(prints_.path() / "joins");
  LauncherProcess joins({"join", pid(), "h2"}, job_.folder(), prints_.path() / "joins");
  ASSERT_TRUE(is_logged("asks this cluster to take in h2")) << job_.log();
  const Ended status = command({"nodes", pid()});
  EXPECT_EQ(status.code, 0) << status.describe();
  EXPECT_LT(status.seconds, 4 * test::time_scale) << "the join takes 15 s";
  running_->signal(SIGINT);
  ASSERT_TRUE(is_told("finishing the requests that run"));
  const auto began = std::chrono::steady_clock::now();
  running_->signal(SIGINT);
  const Ended ended = wait();
  EXPECT_LT(std::chrono::steady_clock::now() - began, 5s * test::time_scale) << ended.describe();
  EXPECT_NE(joins.wait(run_limit).code, 0);
}

TEST_F(Growth, or_not_a_node_that_was_let_go_is_told_as_drained) {
  ASSERT_NO_FATAL_FAILURE(start(long_input(), replicas(2, on_hosts(2, 1))));
  const Ended drained = drain("h2");
  ASSERT_EQ(drained.code, 0) << drained.describe();
  const Ended nodes = command({"nodes", pid()});
  EXPECT_THAT(nodes.out, ::testing::ContainsRegex("h2 +h2 +10.77.0.2 +drained"));
  EXPECT_THAT(nodes.out, Not(HasSubstr("its agent")));
  EXPECT_THAT(drain("h2").err, HasSubstr("node 'h2' is not there: it was drained"));
}

TEST(GrowthInSlurm, takes_the_nodes_of_a_second_allocation_in) {
  if (const auto missing = test::missing_slurm(); !missing.empty()) GTEST_SKIP() << missing;
  const LauncherJob job;
  job.write_input(some_tales());
  std::ofstream(job.folder() / "script.sh")
      << "cd " << job.folder().string() << "\n"
      << "export XDG_STATE_HOME=$PWD/home\n"
         "salloc --quiet --exclusive --nodes=1 " TROUPE_LAUNCHER
         " --config cluster.yaml --set name=grows --set cluster.launch=slurm --set "
         "cluster.network=lo --set cluster.devices_per_node=1 --set cluster.elastic=true --set "
         "parallel.data_parallel_size=3 --set engine.max_num_seqs=4 &\n"
         "job=$!\n"
         "for i in $(seq 400); do [ -s out.jsonl ] && break; sleep 0.1; done\n" TROUPE_LAUNCHER
         " join grows && exit 7  # in no allocation\n"
         "sbatch --exclusive --nodes=2 --output=second.log --wrap '" TROUPE_LAUNCHER
         " join grows; echo left: $?'\n"
         "wait $job || exit 8\n"
         "for i in $(seq 200); do [ -z \"$(squeue --noheader)\" ] && exit 0; sleep 0.1; done\n"
         "squeue; exit 9\n";
  const auto command = fmt::format(
      "timeout {1} " TROUPE_SOURCE_DIR
      "/tests/support/hosts/with-slurm --no-allocation 3 bash {0}/script.sh >{0}/slurm.log 2>&1",
      job.folder().string(), 110 * test::time_scale);
  const int code = std::system(command.c_str());
  const std::string printed = golden::file_bytes(job.folder() / "slurm.log");
  const std::string second = golden::file_bytes(job.folder() / "second.log");
  ASSERT_EQ(code, 0) << printed << second << job.log();
  EXPECT_THAT(printed, HasSubstr("run `launcher join grows` in another allocation of Slurm"));
  EXPECT_THAT(printed, HasSubstr("no node was drained: run this in another allocation"));
  for (const char* node : {"n2", "n3"}) {
    EXPECT_THAT(printed, HasSubstr(fmt::format(" serves on '{}', ", node)));
    EXPECT_THAT(job.log(fmt::format("agent-{}", node)), HasSubstr("worker-"));
  }
  EXPECT_THAT(second, HasSubstr("n2, n3 have come"));
  EXPECT_THAT(second, HasSubstr("n2, n3 stay as long as grows "));
  EXPECT_THAT(second, HasSubstr("left: 0")) << "it ends with the job";
  expect_same_payloads(answers_to(some_tales()), job.answers(), "a job over two allocations");
  expect_first_answers(
      nlohmann::json::parse(golden::file_bytes(job.folder() / "out.jsonl.job" / "report.json"))
          .at("domain_changes"),
      {"n2", "n3"});
}

}  // namespace
}  // namespace troupe::launcher_test
