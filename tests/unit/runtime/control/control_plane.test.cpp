#include "runtime/control/control_plane.hpp"

#include <atomic>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/call/future.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

using namespace std::chrono_literals;

/// Speaks no TLS at the port and goes away.
void knock(std::uint16_t port) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return;
  constexpr char text[] = "GET / HTTP/1.0\r\n\r\n";
  [[maybe_unused]] const auto sent = ::send(socket.get(), text, sizeof text, MSG_NOSIGNAL);
}

TEST(ControlPlane, keeps_agents_although_strangers_knock_and_refuses_other_jobs) {
  const auto keys = *JobKeys::generate();
  std::atomic<int> lost = 0;
  std::atomic<int> heard = 0;
  Promise<AgentKey> hello;
  auto server = ControlServer::start(keys, "127.0.0.1",
                                     {[&](AgentKey agent, const ControlMessage&) {
                                        ++heard;
                                        hello.complete(agent);
                                      },
                                      [&](AgentKey) { ++lost; }});
  ASSERT_TRUE(server.ok()) << server.error().message;
  const std::uint16_t port = (*server)->port();
  Promise<void> answered;
  auto client = ControlClient::connect(
      keys, "127.0.0.1", port, {"node", 1, 1},
      {[&](const ControlMessage&) { answered.complete({}); }, [] {}}, 5000ms);
  ASSERT_TRUE(client.ok()) << client.error().message;
  const auto agent = hello.future().get(5s);
  ASSERT_TRUE(agent.ok()) << agent.error().message;
  for (int i = 0; i < 30; ++i) knock(port);
  const auto stranger = ControlClient::connect(*JobKeys::generate(), "127.0.0.1", port,
                                               {"node", 2, 2}, {[](auto) {}, [] {}}, 100ms);
  EXPECT_FALSE(stranger.ok()) << "a process of another job was let in";
  (*server)->send(*agent, Heartbeat{});
  EXPECT_TRUE(answered.future().get(5s).ok()) << "the agent's connection was lost";
  EXPECT_EQ(lost, 0);
  EXPECT_EQ(heard, 1);
}

}  // namespace troupe
