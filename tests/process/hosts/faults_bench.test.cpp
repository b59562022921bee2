#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/process/hosts/support/broken_batch.hpp"
#include "tests/process/hosts/support/cluster_settings.hpp"
#include "tests/process/hosts/support/joining_agent.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/support/checkpoint_folder.hpp"
#include "tests/support/hosts/test_hosts.hpp"

// `launcher bench faults` breaks processes and nodes of real hosts.

namespace troupe::launcher_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class HostFaultsBench : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto missing = test::missing_hosts(); !missing.empty()) GTEST_SKIP() << missing;
  }

  /// Two tensor ranks on two of three hosts.
  Ended bench(const std::vector<std::string>& more) {
    std::vector<std::string> settings = on_hosts(3, 1);
    settings.emplace_back("parallel.tensor_parallel_size=2");
    return bench_on(settings, more);
  }
  Ended bench_on(const std::vector<std::string>& settings, const std::vector<std::string>& more) {
    std::vector<std::string> arguments{
        "bench", "faults",      "--config", "cluster.yaml", "--json", "f.json",     "--num-prompts",
        "8",     "--input-len", "10:40",    "--output-len", "20:80",  "--interval", "0.2"};
    for (const std::string& word : as_arguments(settings)) arguments.push_back(word);
    arguments.insert(arguments.end(), more.begin(), more.end());
    return job_.run_plain(arguments);
  }
  json figures() const {
    return json::parse(golden::file_bytes(job_.folder() / "f.json"), nullptr, false);
  }

  LauncherJob job_;
};

TEST_F(HostFaultsBench, breaks_processes_and_nodes_of_other_hosts) {
  const Ended ended = bench({"--kinds", "worker,executor,agent,node", "--count", "4"});
  ASSERT_EQ(ended.code, 0) << ended.describe();
  const json found = figures();
  ASSERT_EQ(found["faults"].size(), 4U) << found;
  EXPECT_EQ(found["answers_different"], 0);
  for (const json& fault : found["faults"]) {
    EXPECT_TRUE(fault["noticed_ms"].is_number()) << fault;
    EXPECT_TRUE(fault["next_step_seconds"].is_number()) << fault;
    EXPECT_THAT(fault["node"].get<std::string>(), testing::StartsWith("h"));
  }
  EXPECT_EQ(found["memory_after"]["agents"].size(), 3U) << "all nodes are there again";
}

TEST_F(HostFaultsBench, freezes_nodes_and_cuts_links_for_a_while) {
  const Ended ended =
      bench({"--kinds", "freeze,link", "--link-device", "eth0", "--count", "2", "--outage", "3"});
  ASSERT_EQ(ended.code, 0) << ended.describe();
  const json found = figures();
  EXPECT_EQ(found["answers_different"], 0);
  for (const json& fault : found["faults"]) {
    EXPECT_GT(fault["noticed_ms"], 500.0) << "by a lease: " << fault;
  }
}

TEST_F(HostFaultsBench, tells_of_replicas_that_are_dropped_and_come_back) {
  std::vector<std::string> settings = on_hosts(2, 1);
  settings.emplace_back("parallel.data_parallel_size=2");
  settings.emplace_back("cluster.elastic=true");
  const Ended ended = bench_on(
      settings, {"--kinds", "link", "--link-device", "eth0", "--count", "2", "--outage", "8"});
  ASSERT_EQ(ended.code, 0) << ended.describe();
  const json found = figures();
  EXPECT_EQ(found["answers_different"], 0);
  EXPECT_EQ(found["saved_tokens_sampled_again"], 0) << found;
  EXPECT_EQ(found["domain_contradictions"], json::array());
  ASSERT_EQ(found["domain_changes"].size(), 4U) << found;
  for (std::size_t i = 0; i < 4; ++i) {
    const json& change = found["domain_changes"][i];
    EXPECT_EQ(change["change"], i % 2 == 0 ? "dropped" : "back") << change;
    EXPECT_EQ(change["serving"], i % 2 == 0 ? 1 : 2) << change;
  }
  for (const json& fault : found["faults"]) EXPECT_EQ(fault["dropped_domains"], 1) << fault;
  EXPECT_THAT(ended.err, HasSubstr("is dropped; 1 of 2 serve, "));
  EXPECT_THAT(ended.err, HasSubstr("; 2 of 2 serve"));
  EXPECT_THAT(ended.out, HasSubstr("2 step domains were dropped with "));
}

TEST_F(HostFaultsBench, breaks_experts_over_replicas_of_stages_on_four_hosts) {
  expect_survived(job_,
                  {"ssh",
                   {"data_parallel_size=2", "pipeline_parallel_size=2", "expert_parallel_size=2"},
                   "worker,executor,stop,agent,node,freeze,link",
                   7});
}

TEST_F(HostFaultsBench, breaks_experts_over_replicas_on_four_nodes_of_slurm) {
  const BrokenBatch batch{
      "slurm",
      {"data_parallel_size=2", "tensor_parallel_size=2", "expert_parallel_size=4"},
      "worker,executor,stop,agent,node,freeze",
      6};
  if (const auto missing = missing_for(batch); !missing.empty()) GTEST_SKIP() << missing;
  expect_survived(job_, batch);
}

TEST_F(HostFaultsBench, tells_what_to_run_in_place_of_a_node_that_joined) {
  write_token(job_.folder() / "job.token", 'a');
  JoiningAgent first(job_, 1, "job.token"), second(job_, 2, "job.token");
  std::vector<std::string> arguments{
      "bench", "faults",       "--config", "cluster.yaml", "--json", "f.json",  "--num-prompts",
      "8",     "--output-len", "20:80",    "--kinds",      "agent",  "--count", "1"};
  std::vector<std::string> settings = joined_by(2);
  settings.emplace_back("parallel.tensor_parallel_size=2");
  for (const std::string& word : as_arguments(settings)) arguments.push_back(word);
  LauncherProcess running(arguments, job_.folder(), job_.folder().parent_path());
  ASSERT_TRUE(
      running.wait_for_stderr("take its place run:\n"
                              "  launcher agent --join 10.77.0.254:7070 --token-file " +
                                  (job_.folder() / "job.token").string() + "\n",
                              run_limit))
      << running.wait({}).describe();
  JoiningAgent third(job_, 3, "job.token");
  const Ended ended = running.wait(run_limit);
  ASSERT_EQ(ended.code, 0) << ended.describe() << third.log();
  EXPECT_EQ(figures()["answers_different"], 0);
}

TEST_F(HostFaultsBench, says_what_is_missing_for_a_link) {
  const Ended ended = bench({"--kinds", "link", "--link-device", "eth9"});
  EXPECT_EQ(ended.code, 3) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("there is no network device eth9"));
}

}  // namespace
}  // namespace troupe::launcher_test
