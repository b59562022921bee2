#include <chrono>
#include <cstdio>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/golden/support/golden_model.hpp"
#include "tests/process/hosts/support/cluster_settings.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/process/launcher/support/topologies.hpp"
#include "tests/support/hosts/test_hosts.hpp"

namespace troupe::launcher_test {
namespace {

using ::testing::HasSubstr;

/// Settings of a job with a pipeline stage on each of two hosts, and `more`.
std::vector<std::string> a_stage_on_each(std::vector<std::string> more = {}) {
  more.emplace_back("parallel.pipeline_parallel_size=2");
  for (const std::string& setting : on_hosts(2, 1)) more.push_back(setting);
  return more;
}

class HostJobs : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto missing = test::missing_hosts(); !missing.empty()) GTEST_SKIP() << missing;
  }

  static void expect_same_bytes(std::vector<std::string> settings,
                                const std::vector<std::string>& parallel, const std::string& what) {
    for (const auto& size : parallel) settings.push_back("parallel." + size);
    const Answers one = answers_to(golden_input());
    ASSERT_FALSE(one.empty());
    expect_same_payloads(one, answers_to(golden_input(), settings), what);
  }
};

TEST_F(HostJobs, give_the_bytes_of_one_worker_with_a_stage_on_each_host) {
  expect_same_bytes(on_hosts(2, 1), {"pipeline_parallel_size=2"}, "pp2 on two hosts");
}

TEST_F(HostJobs, give_the_bytes_of_one_worker_with_a_tensor_group_over_two_hosts) {
  expect_same_bytes(on_hosts(2, 1), {"tensor_parallel_size=2", "sequence_parallel=true"},
                    "tp2 over two hosts");
}

TEST_F(HostJobs, give_the_bytes_of_one_worker_with_a_tensor_group_of_four_over_two_hosts) {
  expect_same_bytes(on_hosts(2, 2), {"tensor_parallel_size=4", "sequence_parallel=true"},
                    "tp4 over two hosts of two");
}

TEST_F(HostJobs, give_the_bytes_of_one_worker_with_four_tensor_ranks_on_hosts_of_three) {
  expect_same_bytes(on_hosts(2, 3), {"tensor_parallel_size=4"}, "tp4 on two hosts of three");
}

TEST_F(HostJobs, give_the_bytes_of_one_worker_with_experts_of_replicas_on_two_hosts) {
  expect_same_bytes(on_hosts(2, 2),
                    {"data_parallel_size=2", "tensor_parallel_size=2", "expert_parallel_size=4"},
                    "dp2 x tp2 with experts over all");
}

TEST_F(HostJobs, give_the_bytes_of_one_worker_with_a_dense_model_in_stages_on_two_hosts) {
  const auto dense = golden::golden_model("fable-dense");
  if (!dense) GTEST_SKIP() << golden::missing_model_message("fable-dense");
  std::vector<std::string> settings = on_hosts(2, 1);
  settings.emplace_back("parallel.pipeline_parallel_size=2");
  expect_same_payloads(answers_to(golden_input(), {}, 0, dense->checkpoint),
                       answers_to(golden_input(), settings, 0, dense->checkpoint),
                       "pp2 of a dense model on two hosts");
}

class HostJobsOverIpv6 : public HostJobs, public testing::WithParamInterface<const char*> {};

TEST_P(HostJobsOverIpv6, give_the_bytes_of_one_worker) {
  expect_same_bytes({"cluster.launch=ssh", "cluster.hosts=[\"fd77::1\", \"fd77::2\"]",
                     "cluster.devices_per_node=1"},
                    {GetParam()}, "two hosts by IPv6");
}

INSTANTIATE_TEST_SUITE_P(with, HostJobsOverIpv6,
                         testing::Values("pipeline_parallel_size=2", "tensor_parallel_size=2"),
                         [](const auto& instance) {
                           const std::string size = instance.param;
                           return size.substr(0, size.find('='));
                         });

TEST_F(HostJobs, run_as_the_example_says) {
  const LauncherJob job;
  std::filesystem::create_directory_symlink(TROUPE_SOURCE_DIR "/configs", job.folder() / "configs");
  job.write_input(golden_input());
  const std::string copies = "model.stage_folder=" + (job.folder() / "copies").string();
  const Ended checked =
      job.run_plain({"check", "--config", "configs/two-hosts.yaml", "--set", copies});
  EXPECT_EQ(checked.code, 0) << checked.describe();
  EXPECT_THAT(checked.out, HasSubstr("\n1     h2     0 "));
  const Ended ended = job.run_plain({"--config", "configs/two-hosts.yaml", "--input", "in.jsonl",
                                     "--output", "out.jsonl", "--set", copies});
  ASSERT_EQ(ended.code, 0) << ended.describe();
  expect_same_payloads(answers_to(golden_input()), job.answers(), "configs/two-hosts.yaml");
}

TEST_F(HostJobs, end_with_the_host_that_was_cut_off_and_go_on_when_it_is_back) {
  const LauncherJob job;
  job.write_input(golden_input());
  std::vector<std::string> arguments =
      as_arguments(a_stage_on_each({"engine.max_num_seqs=2", "restart.max=0"}));
  const auto running = job.start(arguments);
  const auto has_answers = [&] {
    std::error_code error;
    return std::filesystem::file_size(job.output(), error) > 0 && !error;
  };
  for (int i = 0; i < 1000 && !has_answers(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  test::set_link(2, false);
  const Ended ended = running->wait(run_limit);
  test::set_link(2, true);
  ASSERT_EQ(ended.code, 3) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("h2"));
  const Ended again = job.run(arguments);
  ASSERT_EQ(again.code, 0) << again.describe();
  expect_same_payloads(answers_to(golden_input()), job.answers(), "a job that was cut off");
}

TEST_F(HostJobs, name_the_host_that_refuses_and_its_log) {
  const LauncherJob job;
  job.write_input(golden_input());
  const Ended ended = job.run({"--set", "cluster.launch=ssh", "--set", "cluster.hosts=[h1, h2:24]",
                               "--set", "parallel.pipeline_parallel_size=2"});
  EXPECT_NE(ended.code, 0);
  EXPECT_THAT(ended.describe(), HasSubstr("h2"));
  EXPECT_THAT(ended.describe(), HasSubstr("agent-h2.log"));
  EXPECT_THAT(job.log("agent-h2"), HasSubstr("Connection refused"));
}

/// The ports of the host at which something listens, but for sshd's.
std::vector<int> listening_ports(const std::string& prefix) {
  std::vector<int> ports;
  std::FILE* out = ::popen((prefix + "ss -Hltn | awk '{print $4}' | sed 's/.*://'").c_str(), "r");
  for (int port = 0; std::fscanf(out, "%d", &port) == 1;) {
    if (port != 22) ports.push_back(port);
  }
  ::pclose(out);
  return ports;
}

TEST_F(HostJobs, listen_only_in_the_range_of_ports_that_a_firewall_leaves_open) {
  const LauncherJob job;
  job.write_input(golden_input());
  std::vector<std::string> arguments = as_arguments(a_stage_on_each({"engine.max_num_seqs=2"}));
  std::vector<std::string> few = arguments;
  arguments.insert(arguments.end(), {"--set", "cluster.ports=7100-7107"});
  const auto running = job.start(arguments);
  ASSERT_TRUE(running->wait_for_lines(job.output(), 1, run_limit))
      << running->wait(run_limit).describe();
  for (const char* host : {"nsenter --net=/run/netns/h1 ", "nsenter --net=/run/netns/h2 ", ""}) {
    const std::vector<int> ports = listening_ports(host);
    EXPECT_THAT(ports, ::testing::Not(::testing::IsEmpty())) << host;
    EXPECT_THAT(ports, ::testing::Each(::testing::AllOf(::testing::Ge(7100), ::testing::Le(7107))))
        << host;
  }
  const Ended ended = running->wait(run_limit);
  ASSERT_EQ(ended.code, 0) << ended.describe();
  expect_same_payloads(answers_to(golden_input()), job.answers(), "a range of ports");

  const LauncherJob second;
  second.write_input(golden_input());
  few.insert(few.end(), {"--set", "cluster.ports=7100-7101"});  // enough for the launcher alone
  const Ended refused = second.run(few);
  EXPECT_EQ(refused.code, 3) << refused.describe();
  EXPECT_THAT(refused.err, HasSubstr("every port of 7100-7101 is taken"));
}

TEST_F(HostJobs, tell_how_long_each_phase_of_the_start_took) {
  const LauncherJob job;
  job.write_input(golden_input());
  const Ended ended = job.run(as_arguments(a_stage_on_each()));
  ASSERT_EQ(ended.code, 0) << ended.describe();
  const std::string log = job.log();
  EXPECT_THAT(log, ::testing::ContainsRegex("the nodes were ready after [0-9]+ ms: agents [0-9]+, "
                                            "preflight [0-9]+"));
  EXPECT_THAT(log, ::testing::ContainsRegex("the engine was ready after [0-9]+ ms: processes "));
  EXPECT_THAT(log, ::testing::ContainsRegex("first token [0-9]+ ms after the start"));
}

TEST_F(HostJobs, report_on_each_host_and_on_what_its_links_have_carried) {
  const LauncherJob job;
  job.write_input(golden_input());
  const Ended ended = job.run(as_arguments(a_stage_on_each()));
  ASSERT_EQ(ended.code, 0) << ended.describe();
  std::ifstream file(job.folder() / "out.jsonl.job" / "report.json");
  const auto report = nlohmann::json::parse(file);
  const auto& hosts = report.at("hosts");
  ASSERT_EQ(hosts.size(), 2U);
  EXPECT_EQ(hosts[1].at("host"), "h2");
  EXPECT_EQ(hosts[1].at("address"), test::host_address(2));
  EXPECT_EQ(hosts[1].at("ranks"), nlohmann::json::array({1}));
  EXPECT_GT(hosts[1].at("computing_seconds"), 0);
  const auto& busiest = report.at("links").at(0);  // the first stage's rows go to the second
  EXPECT_EQ(busiest.at("from"), "h1");
  EXPECT_EQ(busiest.at("to"), "h2");
  EXPECT_GT(busiest.at("bytes"), 1'000'000);
  EXPECT_GT(busiest.at("measured_bytes_per_second"), 0);
  EXPECT_GE(hosts[1].at("received_bytes"), busiest.at("bytes"));
}

TEST_F(HostJobs, gather_what_all_processes_of_a_host_log) {
  const LauncherJob job;
  job.write_input(golden_input());
  const Ended ended = job.run(as_arguments(a_stage_on_each()));
  ASSERT_EQ(ended.code, 0) << ended.describe();
  for (const int host : {1, 2}) {
    const std::string log = job.log(fmt::format("agent-h{}", host));
    EXPECT_THAT(log, HasSubstr(fmt::format("worker-{}: ", host - 1)));
    EXPECT_THAT(log, HasSubstr(fmt::format("agent-h{}: ", host)));
  }
}

}  // namespace
}  // namespace troupe::launcher_test
