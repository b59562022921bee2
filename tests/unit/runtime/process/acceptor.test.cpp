#include "runtime/process/acceptor.hpp"

#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

namespace troupe {
namespace {

using namespace std::chrono_literals;

class Acceptors : public ::testing::Test {
 protected:
  void SetUp() override {
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address_), length_), 0);
    ASSERT_EQ(::listen(socket.get(), 128), 0);
    ASSERT_EQ(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address_), &length_), 0);
    listener_ = std::move(socket);
  }
  std::vector<UniqueFd> connect(int count) {
    std::vector<UniqueFd> sockets;
    for (int i = 0; i < count; ++i) {
      UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address_), length_), 0);
      sockets.push_back(std::move(socket));
    }
    return sockets;
  }

  UniqueFd listener_;
  sockaddr_in address_{};
  socklen_t length_ = sizeof address_;
};

TEST_F(Acceptors, take_a_burst_and_then_pause) {
  Acceptor acceptor(std::move(listener_), {.burst = 4, .pause = 20ms});
  const auto clients = connect(6);
  const auto now = Acceptor::Clock::now();
  std::vector<UniqueFd> taken;
  while (UniqueFd socket = acceptor.accept(now)) taken.push_back(std::move(socket));
  EXPECT_EQ(taken.size(), 4U);
  EXPECT_TRUE(acceptor.rests(now + 19ms));
  EXPECT_FALSE(acceptor.accept(now + 19ms));
  while (UniqueFd socket = acceptor.accept(now + 20ms)) taken.push_back(std::move(socket));
  EXPECT_EQ(taken.size(), 6U);
  EXPECT_FALSE(acceptor.rests(now + 20ms)) << "nobody waits any more";
}

TEST_F(Acceptors, turn_away_who_waits_when_descriptors_run_out) {
  Acceptor acceptor(std::move(listener_));
  const auto clients = connect(3);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(clients.back().get()) + 1;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto now = Acceptor::Clock::now();
  // The reserve descriptor is the only one left.
  const bool accepted = static_cast<bool>(acceptor.accept(now));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(accepted);
  EXPECT_EQ(acceptor.take_turned_away(), 3U);
  EXPECT_TRUE(acceptor.rests(now + 99ms));
  EXPECT_FALSE(acceptor.rests(now + 100ms));
  pollfd waiting{acceptor.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&waiting, 1, 0), 0) << "nobody waits: the socket is not readable for ever";
  const auto later = connect(1);
  EXPECT_TRUE(acceptor.accept(now + 100ms));
}

}  // namespace
}  // namespace troupe
