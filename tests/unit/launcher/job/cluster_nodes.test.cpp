#include "launcher/job/cluster_nodes.hpp"

#include <gtest/gtest.h>

#include "runtime/link/local_address.hpp"
#include "runtime/node/node_ticket.hpp"

namespace troupe {
namespace {

Config config_of(const std::string& host) {
  Config config;
  config.cluster.launch = "ssh";
  config.cluster.network = "lo";
  config.cluster.ports = "auto";
  config.cluster.hosts = {host};
  return config;
}

TEST(ClusterNodes, are_named_after_hosts_of_every_spelling) {
  const std::pair<const char*, const char*> names[] = {
      {"host1", "host1"}, {"alice@host1:2222", "host1"},     {"2001:db8::5", "2001_db8__5"},
      {"::1", "__1"},     {"[fd00::aa:1]:22", "fd00__aa_1"}, {"alice@[fd00::1]", "fd00__1"},
  };
  for (const auto& [host, name] : names) {
    const auto cluster = cluster_of(config_of(host), 1, 1);
    ASSERT_TRUE(cluster.ok()) << cluster.error().message;
    ASSERT_EQ(cluster->nodes.size(), 1U);
    EXPECT_EQ(cluster->nodes[0].name, name);
    const NodeTicket ticket{.node = name, .host = "10.0.0.1", .port = 1, .key = {}};
    EXPECT_TRUE(NodeTicket::parse(ticket.text()).ok()) << "agents take no other names";
  }
  for (const char* host : {"host1:", "host1:x", "alice@", "-host", "[::1]:x"}) {
    EXPECT_FALSE(cluster_of(config_of(host), 1, 1).ok()) << host;
  }
}

TEST(ClusterNodes, reach_the_launcher_where_it_goes_to_the_first_that_is_not_this_machine) {
  Config config = config_of("localhost");
  config.cluster.network = "auto";
  EXPECT_TRUE(is_loopback(cluster_of(config, 1, 1)->address)) << "there is no other host";
  const auto outside = local_address_towards("192.0.2.1");  // kept for documentation: RFC 5737
  if (!outside.ok()) GTEST_SKIP() << "no way leads out of this machine";
  config.cluster.hosts = {"localhost", "192.0.2.1"};
  EXPECT_EQ(cluster_of(config, 2, 1)->address, *outside);
}

TEST(ClusterNodes, are_this_machine_only_if_nothing_else_starts_them) {
  Config config = config_of("host1");
  EXPECT_FALSE(computes_here(config));
  config.cluster.launch = "slurm";
  EXPECT_FALSE(computes_here(config));
  config.cluster.hosts.clear();
  config.cluster.launch = "local";
  EXPECT_TRUE(computes_here(config));
}

TEST(ClusterNodes, of_the_end_of_the_list_are_spares) {
  Config config = config_of("h1");
  config.cluster.hosts = {"h1", "h2", "h3"};
  config.cluster.spares = 1;
  ASSERT_TRUE(hosts_of(config).ok());
  EXPECT_EQ(node_count(config), 2);
  const auto cluster = cluster_of(config, 4, 1);
  ASSERT_TRUE(cluster.ok()) << cluster.error().message;
  ASSERT_EQ(cluster->nodes.size(), 3U);
  for (const NodeSpec& node : cluster->nodes) EXPECT_EQ(node.devices.size(), 2U) << node.name;
  EXPECT_FALSE(cluster->nodes[1].is_spare);
  EXPECT_TRUE(cluster->nodes[2].is_spare);
  config.cluster.spares = 3;
  EXPECT_EQ(hosts_of(config).error().message,
            "cluster.spares: 3 of 3 nodes leave none for workers: name more nodes");
  config.cluster.launch = "local";
  config.cluster.hosts.clear();
  EXPECT_EQ(hosts_of(config).error().message,
            "cluster.spares: a job on this machine alone has one node, and no spares");
}

}  // namespace
}  // namespace troupe
