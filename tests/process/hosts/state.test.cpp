#include <csignal>
#include <filesystem>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/process/hosts/support/cluster_settings.hpp"
#include "tests/process/hosts/support/host_change.hpp"
#include "tests/process/hosts/support/observed_program.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/process/launcher/support/topologies.hpp"
#include "tests/support/hosts/test_hosts.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

/// The tool gives an answer or a reason within this time.
constexpr double answer_seconds = 8;

class StateOverHosts : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto missing = missing_hosts(); !missing.empty()) GTEST_SKIP() << missing;
    folder_.emplace();
  }

  const std::filesystem::path& folder() const { return folder_->path(); }
  Said troupe(int host, std::vector<std::string> words) const {
    return troupe_on_host(host, folder(), std::move(words), TROUPE_TOOL);
  }
  json answer(int host, std::vector<std::string> words) const {
    words.emplace_back("--json");
    const Said said = troupe(host, words);
    if (said.code != 0) throw std::runtime_error(said.text);
    return json::parse(said.text);
  }
  /// The only cluster that `status` lists on the host.
  json status(int host) const {
    const json clusters = answer(host, {"status"})["clusters"];
    if (clusters.size() != 1) throw std::runtime_error(clusters.dump());
    return clusters[0];
  }
  /// What `status` says of a driver that it cannot ask; it exists, and `nodes` says the same.
  std::string why_unreached(int host) const {
    const Said shown = troupe(host, {"status"});
    EXPECT_EQ(shown.code, 0) << shown.text;
    EXPECT_LT(shown.seconds, answer_seconds) << shown.text;
    const Said nodes = troupe(host, {"nodes"});
    EXPECT_EQ(nodes.code, 2) << nodes.text;
    EXPECT_LT(nodes.seconds, answer_seconds) << nodes.text;
    const std::string why = status(host)["why"];
    EXPECT_THAT(shown.text, HasSubstr(why));
    EXPECT_THAT(nodes.text, HasSubstr(why));
    return why;
  }

 private:
  std::optional<tests::TemporaryFolder> folder_;
};

TEST_F(StateOverHosts, a_host_that_is_not_the_drivers_shows_the_cluster_its_actors_and_their_logs) {
  const ObservedProgram program(folder(), 2);
  for (const int host : {0, 1, 2, 3}) {
    const json cluster = status(host);
    EXPECT_EQ(cluster["name"], "observed");
    EXPECT_EQ(cluster["address"], own_address);
    EXPECT_EQ(cluster["nodes_alive"], 2);
    EXPECT_EQ(cluster["actors"], 2);
  }
  const json nodes = answer(3, {"nodes"})["nodes"];
  ASSERT_EQ(nodes.size(), 2U);
  EXPECT_EQ(nodes[1]["name"], "node2");
  EXPECT_EQ(nodes[1]["host"], "h2");
  EXPECT_EQ(nodes[1]["address"], host_address(2));
  const json actors = answer(3, {"actors", "observed"})["actors"];
  ASSERT_EQ(actors.size(), 2U);
  EXPECT_EQ(actors[0]["name"], "on-node1");
  EXPECT_EQ(actors[0]["node"], "node1");
  const Said log = troupe(3, {"logs", "on-node2"});
  EXPECT_EQ(log.code, 0) << log.text;
  EXPECT_THAT(log.text, HasSubstr("agent of node node2 is ready"));
}

TEST_F(StateOverHosts, stop_on_another_host_ends_the_program_in_order) {
  ObservedProgram program(folder(), 1);
  const Said said = troupe(2, {"stop"});
  EXPECT_EQ(said.code, 0) << said.text;
  EXPECT_THAT(said.text, HasSubstr("has ended"));
  const auto ended = program.process().wait(std::chrono::seconds(10));
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->code, 0);
  EXPECT_THAT(program.output(), HasSubstr("ends in order"));
  EXPECT_EQ(answer(2, {"status"})["clusters"].size(), 0U);
}

TEST_F(StateOverHosts, the_launcher_on_another_host_ends_a_job_in_order) {
  using namespace launcher_test;
  const LauncherJob job;
  job.write_input(golden_input());
  ::setenv("XDG_STATE_HOME", (folder() / "home").c_str(), 1);
  std::vector<std::string> settings = on_hosts(2, 1);
  settings.insert(settings.end(), {"parallel.pipeline_parallel_size=2", "engine.max_num_seqs=1"});
  const auto running = job.start(as_arguments(settings));
  ::unsetenv("XDG_STATE_HOME");
  ASSERT_TRUE(running->wait_for_lines(job.output(), 1, run_limit))
      << running->wait(run_limit).describe();
  std::filesystem::create_directory_symlink(folder() / "home/troupe/clusters",
                                            folder() / "clusters");
  const Said said = troupe_on_host(3, folder(), {"stop"}, TROUPE_LAUNCHER);
  EXPECT_EQ(said.code, 0) << said.text;
  const Ended ended = running->wait(run_limit);
  EXPECT_EQ(ended.code, 4) << ended.describe();
}

TEST_F(StateOverHosts, a_driver_behind_a_cut_link_is_said_to_be_out_of_reach) {
  const ObservedProgram program(folder(), 1);
  set_link(2, false);
  const std::string why = why_unreached(2);
  set_link(2, true);
  EXPECT_THAT(why, HasSubstr("10.77.0.254:"));
  EXPECT_THAT(why, HasSubstr("ssh"));
  EXPECT_EQ(status(2)["nodes_alive"], 1);
}

TEST_F(StateOverHosts, a_driver_without_a_route_to_it_is_said_to_be_out_of_reach) {
  const ObservedProgram program(folder(), 1);
  const HostChange no_route(2, "ip route add unreachable 10.77.0.254",
                            "ip route del unreachable 10.77.0.254");
  const std::string why = why_unreached(2);
  EXPECT_THAT(why, HasSubstr("10.77.0.254:"));
  EXPECT_THAT(why, HasSubstr("ssh"));
}

TEST_F(StateOverHosts, a_driver_that_is_stopped_is_said_not_to_answer) {
  ObservedProgram program(folder(), 1);
  program.process().signal(SIGSTOP);
  const std::string why = why_unreached(2);
  program.process().signal(SIGCONT);
  EXPECT_THAT(why, HasSubstr("stopped"));
}

TEST_F(StateOverHosts, a_driver_behind_a_firewall_that_resets_connections_keeps_its_file) {
  const ObservedProgram program(folder(), 1);
  {
    // The kernel of this host resets what is sent to that address, as a firewall does.
    const HostChange resets(2, "ip addr add 10.77.0.254/32 dev lo",
                            "ip addr del 10.77.0.254/32 dev lo");
    EXPECT_THAT(why_unreached(2), HasSubstr("firewall"));
    EXPECT_EQ(troupe(2, {"status", "--clean"}).code, 2);
  }
  EXPECT_EQ(status(2)["nodes_alive"], 1) << "its file is there";
}

TEST_F(StateOverHosts, a_driver_that_was_killed_may_be_cleaned_up_by_name_elsewhere) {
  ObservedProgram program(folder(), 1);
  program.process().signal(SIGKILL);
  ASSERT_TRUE(program.process().wait(std::chrono::seconds(10)));
  EXPECT_THAT(why_unreached(2), HasSubstr("--clean"));
  const Said said = troupe(2, {"status", "--clean", "observed"});
  EXPECT_EQ(said.code, 0) << said.text;
  EXPECT_THAT(said.text, HasSubstr("removed"));
  EXPECT_EQ(answer(2, {"status"})["clusters"].size(), 0U);
}

TEST_F(StateOverHosts, a_cluster_of_one_machine_is_to_be_asked_there) {
  const ObservedProgram program(folder(), 0);
  const std::string why = why_unreached(2);
  EXPECT_THAT(why, HasSubstr("ssh "));
  EXPECT_THAT(why, HasSubstr("troupe"));
}

}  // namespace
}  // namespace troupe::test
