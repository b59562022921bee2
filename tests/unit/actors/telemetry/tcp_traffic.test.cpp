#include "actors/telemetry/tcp_traffic.hpp"

#include <array>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "runtime/process/unique_fd.hpp"

namespace troupe {
namespace {

sockaddr_in loopback(const char* address, std::uint16_t port = 0) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(port);
  ::inet_pton(AF_INET, address, &in.sin_addr);
  return in;
}

std::uint64_t sent_between(const char* local, const char* peer) {
  for (const TcpTraffic& traffic : tcp_traffic()) {
    if (traffic.local == local && traffic.peer == peer) return traffic.sent_bytes;
  }
  return 0;
}

TEST(TcpTraffic, counts_the_bytes_of_open_connections_to_other_addresses) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM, 0));
  auto address = loopback("127.0.0.2");
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(listener.get(), generic, size), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ASSERT_EQ(::getsockname(listener.get(), generic, &size), 0);
  const UniqueFd client(::socket(AF_INET, SOCK_STREAM, 0));
  auto from = loopback("127.0.0.3");
  ASSERT_EQ(::bind(client.get(), reinterpret_cast<sockaddr*>(&from), sizeof from), 0);
  ASSERT_EQ(::connect(client.get(), generic, size), 0);
  const UniqueFd server(::accept(listener.get(), nullptr, nullptr));
  std::array<char, 1000> bytes{};
  ASSERT_EQ(::send(client.get(), bytes.data(), bytes.size(), 0), 1000);
  ASSERT_EQ(::recv(server.get(), bytes.data(), bytes.size(), MSG_WAITALL), 1000);
  ASSERT_EQ(::send(server.get(), bytes.data(), 10, 0), 10);
  ASSERT_EQ(::recv(client.get(), bytes.data(), 10, MSG_WAITALL), 10);
  // The kernel counts the byte of the connection's start, too.
  EXPECT_NEAR(static_cast<double>(sent_between("127.0.0.3", "127.0.0.2")), 1000, 1);
  EXPECT_NEAR(static_cast<double>(sent_between("127.0.0.2", "127.0.0.3")), 10, 1);
}

}  // namespace
}  // namespace troupe
