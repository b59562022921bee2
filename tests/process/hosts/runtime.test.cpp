#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/hosts/host_actors.hpp"

namespace troupe::test {
namespace {

using ::testing::HasSubstr;

class Hosts : public testing::Test {
  void SetUp() override {
    if (const auto missing = missing_hosts(); !missing.empty()) GTEST_SKIP() << missing;
  }
};

TEST_F(Hosts, actors_live_on_the_hosts_of_their_nodes_and_call_each_other_directly) {
  auto cluster = start_cluster(options_of_hosts(2));
  const auto first = must(cluster->spawn<Inhabitant>({.name = "one", .node = "node1"}).get(limit));
  const auto second = must(cluster->spawn<Inhabitant>({.name = "two", .node = "node2"}).get(limit));
  const auto third = must(cluster->spawn<Inhabitant>({.node = "node2"}).get(limit));
  EXPECT_EQ(must(first.call<&Inhabitant::host>().get(limit)), "h1");
  EXPECT_EQ(must(second.call<&Inhabitant::host>().get(limit)), "h2");
  EXPECT_EQ(must(second.call<&Inhabitant::address>().get(limit)), host_address(2));
  EXPECT_EQ(must(first.call<&Inhabitant::host_of>(second).get(limit)), "h2");
  EXPECT_EQ(must(third.call<&Inhabitant::host_of>(second).get(limit)), "h2");
  EXPECT_EQ(must(second.call<&Inhabitant::host_of_named>(std::string("one")).get(limit)), "h1");
  const std::string large(std::size_t{5} << 20, 'x');
  EXPECT_EQ(must(first.call<&Inhabitant::echo>(large).get(limit)), large);
  for (const auto& node : cluster->nodes()) EXPECT_EQ(node.host, "h" + node.spec.name.substr(4));
}

TEST_F(Hosts, the_end_of_a_process_is_told_to_other_hosts) {
  auto cluster = start_cluster(options_of_hosts(2));
  const auto first = must(cluster->spawn<Inhabitant>({.node = "node1"}).get(limit));
  const auto second = must(cluster->spawn<Inhabitant>({.node = "node2"}).get(limit));
  ASSERT_EQ(must(first.call<&Inhabitant::host_of>(second).get(limit)), "h2");
  auto end = first.call<&Inhabitant::end_of>(second);
  ASSERT_TRUE(cluster->kill(second).ok());
  EXPECT_THAT(must(end.get(limit)), HasSubstr("SIGKILL"));
  EXPECT_EQ(second.call<&Inhabitant::pid>().get(limit).error().code, ErrorCode::actor_died);
}

TEST_F(Hosts, a_host_whose_link_is_cut_is_lost_within_seconds_and_the_others_go_on) {
  auto cluster = start_cluster(options_of_hosts(2));
  const auto first = must(cluster->spawn<Inhabitant>({.node = "node1"}).get(limit));
  const auto second = must(cluster->spawn<Inhabitant>({.node = "node2"}).get(limit));
  const int lost_pid = must(second.call<&Inhabitant::pid>().get(limit));
  auto end = first.call<&Inhabitant::end_of>(second);
  const auto since = std::chrono::steady_clock::now();
  set_link(2, false);
  const auto told = end.get(limit);
  const auto took = std::chrono::steady_clock::now() - since;
  set_link(2, true);
  ASSERT_TRUE(told.ok()) << told.error().message;
  EXPECT_LT(took, 8s);
  EXPECT_EQ(must(first.call<&Inhabitant::host>().get(limit)), "h1");
  // The lost agent ends by itself, and takes its processes along.
  for (int i = 0; i < 300 && ::kill(lost_pid, 0) == 0; ++i) std::this_thread::sleep_for(50ms);
  EXPECT_NE(::kill(lost_pid, 0), 0) << "a process of the lost host still runs";
}

TEST_F(Hosts, a_host_that_cannot_be_reached_is_named_with_the_reason) {
  ClusterOptions options = options_of_hosts(1);
  SshNodeStarter::Options ssh;
  ssh.host_of_node["node1"] = {"10.77.0.77"};
  ssh.connect_timeout = 1s;
  options.starter = std::make_shared<SshNodeStarter>(std::move(ssh));
  const auto cluster = Cluster::start(std::move(options));
  ASSERT_FALSE(cluster.ok());
  EXPECT_THAT(cluster.error().message, HasSubstr("node1"));
  EXPECT_THAT(cluster.error().message, HasSubstr("exited with code 255"));
}

TEST_F(Hosts, nothing_is_left_on_the_hosts_after_a_shutdown) {
  auto cluster = start_cluster(options_of_hosts(3));
  const auto actor = must(cluster->spawn<Inhabitant>({.node = "node3"}).get(limit));
  const int pid = must(actor.call<&Inhabitant::pid>().get(limit));
  cluster->shutdown();
  for (int i = 0; i < 100 && ::kill(pid, 0) == 0; ++i) std::this_thread::sleep_for(20ms);
  EXPECT_NE(::kill(pid, 0), 0);
}

}  // namespace
}  // namespace troupe::test
