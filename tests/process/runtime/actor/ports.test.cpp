#include <algorithm>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/link/tcp_socket.hpp"
#include "tests/process/runtime/actor/test_actors.hpp"

namespace troupe::test {
namespace {

using ::testing::HasSubstr;

constexpr const char* loopback = "127.0.0.1";

/// Finds so many ports in a row that are free now; others may take them before they are used.
PortRange free_ports(std::uint16_t count) {
  for (std::uint16_t first = 21000; first < 31000; first = static_cast<std::uint16_t>(first + 50)) {
    std::vector<UniqueFd> taken;
    for (std::uint16_t i = 0; i < count; ++i) {
      const auto port = static_cast<std::uint16_t>(first + i);
      auto socket = listen_in({port, port}, "test", loopback);
      if (socket.ok()) taken.push_back(*std::move(socket));
    }
    if (taken.size() == count) return {first, static_cast<std::uint16_t>(first + count - 1)};
  }
  return {};
}

/// The port of "SOCKET LOCALITY ADDRESS PORT".
int port_in(const std::string& endpoint) {
  std::istringstream words(endpoint);
  std::string socket, locality, address;
  int port = 0;
  words >> socket >> locality >> address >> port;
  return port;
}

TEST(Ports, of_all_processes_are_of_the_range_and_their_lack_is_told) {
  constexpr std::uint16_t actors = 3;
  const PortRange ports = free_ports(actors + 2);  // two for the driver
  ASSERT_FALSE(ports.is_any());
  auto cluster = start_cluster({.ports = ports, .address = loopback});
  std::set<int> used;
  for (int i = 0; i < actors; ++i) {
    const auto actor = must(cluster->spawn<Counter>({}, 1).get(limit));
    const int port = port_in(actor.address().endpoint);
    EXPECT_GE(port, ports.first);
    EXPECT_LE(port, ports.last);
    used.insert(port);
  }
  EXPECT_EQ(used.size(), actors);
  const auto one_more = cluster->spawn<Counter>({}, 1).get(limit);
  ASSERT_FALSE(one_more.ok());
  EXPECT_THAT(one_more.error().message,
              HasSubstr(fmt::format("every port of {}-{} is taken", ports.first, ports.last)));
}

TEST(Ports, that_are_all_taken_refuse_the_driver) {
  const auto socket = listen_in({}, "test", loopback);
  ASSERT_TRUE(socket.ok());
  const std::uint16_t port = *port_of(socket->get());
  const auto cluster = Cluster::start({.ports = {port, port}, .address = loopback});
  ASSERT_FALSE(cluster.ok());
  EXPECT_THAT(cluster.error().message, HasSubstr(fmt::format("port {} is taken", port)));
}

}  // namespace
}  // namespace troupe::test
