#include "runtime/channel/channel.hpp"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>

#include "tests/support/another_uid.hpp"
#include "tests/support/knocker.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;

ChannelKeys keys_of(unsigned char job) {
  std::array<std::byte, 32> job_key{};
  job_key.fill(std::byte{job});
  return ChannelKeys::derive(job_key, "test");
}

std::vector<std::byte> pattern(std::size_t bytes) {
  std::vector<std::byte> result(bytes);
  for (std::size_t i = 0; i < bytes; ++i) result[i] = static_cast<std::byte>(i * 31 + bytes);
  return result;
}

bool equal(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::ranges::equal(a, b);
}

struct Pair {
  Channel listener;
  Channel connector;
};

Pair make_pair(const ChannelEndpoint& endpoint) {
  auto listener = Channel::listen(keys_of(1), endpoint);
  EXPECT_TRUE(listener.ok()) << listener.error().message;
  auto connector = Channel::connect(keys_of(1), listener->address());
  EXPECT_TRUE(connector.ok()) << connector.error().message;
  return {std::move(*listener), std::move(*connector)};
}

// The connector echoes until an empty message.
std::thread echo(Channel& connector) {
  return std::thread([&connector] {
    while (true) {
      auto message = connector.receive(deadline_in(10s));
      if (!message || message->bytes().empty()) return;
      if (!connector.send(message->bytes(), deadline_in(10s)).ok()) return;
    }
  });
}

class ChannelTransports : public testing::TestWithParam<const char*> {
  void SetUp() override {
    if (std::string(GetParam()) == "::1" && !std::ifstream("/proc/net/if_inet6")) {
      GTEST_SKIP() << "this machine has no IPv6";
    }
  }
};

TEST_P(ChannelTransports, messages_of_any_size_come_back_whole_in_order_and_aligned) {
  Pair pair = make_pair({GetParam()});
  std::thread other = echo(pair.connector);
  for (const std::size_t bytes : {1, 7, 8, 9, 31, 33, 64, 255, 256, 4'097, 100'001, 1'000'003}) {
    const auto sent = pattern(bytes);
    ASSERT_TRUE(pair.listener.send(sent, deadline_in(10s)).ok()) << bytes;
    auto received = pair.listener.receive(deadline_in(10s));
    ASSERT_TRUE(received.ok()) << bytes << " bytes: " << received.error().message;
    EXPECT_TRUE(equal(sent, received->bytes())) << bytes << " bytes";
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(received->bytes().data()) % 8, 0u) << bytes;
    const std::byte* where = received->bytes().data();
    const Message moved = std::move(*received);
    EXPECT_EQ(moved.bytes().data(), where);
  }
  for (std::size_t i = 1; i <= 100; ++i) {
    ASSERT_TRUE(pair.listener.send(pattern(i), deadline_in(10s)).ok());
  }
  for (std::size_t i = 1; i <= 100; ++i) {
    auto received = pair.listener.receive(deadline_in(10s));
    ASSERT_TRUE(received.ok()) << received.error().message;
    EXPECT_TRUE(equal(pattern(i), received->bytes())) << "message " << i;
  }
  EXPECT_TRUE(pair.listener.send({}, deadline_in(10s)).ok());
  other.join();
}

INSTANTIATE_TEST_SUITE_P(on, ChannelTransports, testing::Values("", "lo", "::1"),
                         [](const auto& instance) {
                           const std::string interface = instance.param;
                           if (interface.empty()) return "node";
                           return interface == "lo" ? "network" : "ipv6_network";
                         });

TEST(Channel, address_on_a_node_is_no_file_and_on_a_network_has_a_port) {
  auto node = Channel::listen(keys_of(1), ChannelEndpoint::on_this_node());
  ASSERT_TRUE(node.ok()) << node.error().message;
  EXPECT_TRUE(node->address().starts_with("ipc://@")) << node->address();
  auto network = Channel::listen(keys_of(1), ChannelEndpoint::on_network("lo"));
  ASSERT_TRUE(network.ok()) << network.error().message;
  EXPECT_TRUE(network->address().starts_with("tcp://127.0.0.1:")) << network->address();
}

TEST(Channel, takes_the_first_free_port_of_a_range_and_says_that_none_is_left) {
  PortRange ports;
  std::vector<Result<Channel>> taken;
  auto next = Channel::listen(keys_of(1), ChannelEndpoint::on_network("lo"));
  // Another program may have the port behind.
  for (int attempts = 0; taken.empty() || (!next.ok() && attempts < 50); ++attempts) {
    taken.push_back(Channel::listen(keys_of(1), ChannelEndpoint::on_network("lo")));
    ASSERT_TRUE(taken.back().ok()) << taken.back().error().message;
    const std::string& address = taken.back()->address();
    ports.first = static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
    ports.last = static_cast<std::uint16_t>(ports.first + 1);
    next = Channel::listen(keys_of(1), ChannelEndpoint::on_network("lo", ports));
  }
  ASSERT_TRUE(next.ok()) << next.error().message;
  EXPECT_EQ(next->address(), fmt::format("tcp://127.0.0.1:{}", ports.last));
  const auto none = Channel::listen(keys_of(1), ChannelEndpoint::on_network("lo", ports));
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::resource_exhausted);
  EXPECT_NE(none.error().message.find(fmt::format("every port of {}-{}", ports.first, ports.last)),
            std::string::npos)
      << none.error().message;
}

TEST(Channel, peer_with_the_key_of_another_job_is_not_connected) {
  auto listener = Channel::listen(keys_of(1), ChannelEndpoint::on_this_node());
  auto stranger = Channel::connect(keys_of(2), listener->address());
  ASSERT_TRUE(listener.ok() && stranger.ok());
  auto sending = std::async(std::launch::async,
                            [&] { return stranger->send(pattern(8), deadline_in(200ms)); });
  EXPECT_EQ(listener->receive(deadline_in(200ms)).error().code, ErrorCode::timed_out);
  EXPECT_EQ(sending.get().error().code, ErrorCode::timed_out);
}

TEST(Channel, peer_that_knows_only_the_listeners_key_is_not_connected) {
  auto listener = Channel::listen(keys_of(1), ChannelEndpoint::on_this_node());
  auto stranger =
      Channel::connect({keys_of(1).listener, keys_of(2).connector}, listener->address());
  ASSERT_TRUE(listener.ok() && stranger.ok());
  auto sending = std::async(std::launch::async,
                            [&] { return stranger->send(pattern(8), deadline_in(200ms)); });
  EXPECT_EQ(listener->receive(deadline_in(200ms)).error().code, ErrorCode::timed_out);
  EXPECT_EQ(sending.get().error().code, ErrorCode::timed_out);
}

TEST(Channel, stranger_does_not_keep_the_rightful_peer_out) {
  auto listener = Channel::listen(keys_of(1), ChannelEndpoint::on_this_node());
  auto stranger = Channel::connect(keys_of(2), listener->address());
  auto rightful = Channel::connect(keys_of(1), listener->address());
  ASSERT_TRUE(listener.ok() && stranger.ok() && rightful.ok());
  std::thread other = echo(*rightful);
  ASSERT_TRUE(listener->send(pattern(5), deadline_in(10s)).ok());
  const auto received = listener->receive(deadline_in(10s));
  EXPECT_TRUE(received.ok() && equal(received->bytes(), pattern(5)));
  EXPECT_TRUE(listener->send({}, deadline_in(10s)).ok());
  other.join();
}

/// True if the listener at an abstract address sends nothing and closes a new connection in time.
bool is_turned_away(const std::string& address) {
  const UniqueFd socket = test::Knocker::to_abstract(address.substr(strlen("ipc://@")))();
  if (!socket) return false;
  pollfd readable{socket.get(), POLLIN, 0};
  char byte = 0;
  return ::poll(&readable, 1, 2000) == 1 && ::recv(socket.get(), &byte, 1, 0) == 0;
}

TEST(Channel, closes_connections_of_other_users_at_once) {
  if (!test::can_change_uid()) GTEST_SKIP() << "only root can act as another user";
  auto listener = Channel::listen(keys_of(1), ChannelEndpoint::on_this_node());
  ASSERT_TRUE(listener.ok());
  const std::string address = listener->address();
  EXPECT_FALSE(is_turned_away(address)) << "this user may try";
  EXPECT_TRUE(test::as_another_uid([&] { return is_turned_away(address); }));
}

TEST(Channel, closes_connections_of_other_processes_than_its_peer_at_once) {
  auto listener = Channel::listen(keys_of(1), ChannelEndpoint::on_this_node(::getpid()));
  ASSERT_TRUE(listener.ok());
  auto rightful = Channel::connect(keys_of(1), listener->address());
  ASSERT_TRUE(rightful.ok());
  std::thread other = echo(*rightful);
  EXPECT_TRUE(listener->send(pattern(5), deadline_in(10s)).ok());
  EXPECT_TRUE(listener->receive(deadline_in(10s)).ok());
  EXPECT_TRUE(listener->send({}, deadline_in(10s)).ok());
  other.join();

  auto choosy = Channel::listen(keys_of(1), ChannelEndpoint::on_this_node(::getppid()));
  ASSERT_TRUE(choosy.ok());
  EXPECT_TRUE(is_turned_away(choosy->address()));
  const auto descriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto before = descriptors();
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 64; ++i) {
    strangers.push_back(test::Knocker::to_abstract(choosy->address().substr(strlen("ipc://@")))());
  }
  EXPECT_TRUE(is_turned_away(choosy->address())) << "behind all of them";
  EXPECT_LE(descriptors(), before + 64) << "their own ends alone";
}

TEST(Channel, keys_differ_by_job_purpose_and_end) {
  const std::array<std::byte, 32> job_key{};
  const ChannelKeys first = ChannelKeys::derive(job_key, "step plane, epoch 1");
  const ChannelKeys second = ChannelKeys::derive(job_key, "step plane, epoch 2");
  EXPECT_NE(first.listener, second.listener);
  EXPECT_NE(first.listener, first.connector);
  EXPECT_EQ(first.connector, ChannelKeys::derive(job_key, "step plane, epoch 1").connector);
}

TEST(Channel, interrupt_cancels_the_receive_that_waits_and_leaves_the_channel_usable) {
  Pair pair = make_pair(ChannelEndpoint::on_this_node());
  auto waiting =
      std::async(std::launch::async, [&] { return pair.listener.receive(deadline_in(10s)).ok(); });
  pair.listener.interrupt();
  EXPECT_FALSE(waiting.get());
  std::thread other = echo(pair.connector);
  EXPECT_TRUE(pair.listener.send(pattern(3), deadline_in(10s)).ok());
  EXPECT_TRUE(pair.listener.receive(deadline_in(10s)).ok());
  EXPECT_TRUE(pair.listener.send({}, deadline_in(10s)).ok());
  other.join();
}

TEST(Channel, interrupts_before_a_wait_count_as_one) {
  auto listener = Channel::listen(keys_of(1), ChannelEndpoint::on_this_node());
  ASSERT_TRUE(listener.ok());
  listener->interrupt();
  listener->interrupt();
  EXPECT_EQ(listener->receive(deadline_in(10s)).error().code, ErrorCode::cancelled);
  EXPECT_EQ(listener->receive(deadline_in(1ms)).error().code, ErrorCode::timed_out);
}

TEST(Channel, send_to_nobody_times_out_and_a_full_queue_bounds_memory) {
  Pair pair = make_pair(ChannelEndpoint::on_this_node());
  auto alone = Channel::listen(keys_of(1), ChannelEndpoint::on_this_node());
  ASSERT_TRUE(alone.ok());
  EXPECT_EQ(alone->send(pattern(1), deadline_in(1ms)).error().code, ErrorCode::timed_out);

  // The other end does not receive, but must still do the handshake.
  const auto large = pattern(100'000);
  int queued = 0;
  while (queued < 100'000 && pair.listener.send(large, deadline_in(500ms)).ok()) ++queued;
  EXPECT_GT(queued, 0);
  EXPECT_LT(queued, 4 * Channel::queue_limit);
}

TEST(Channel, refuses_what_is_too_large_and_addresses_that_are_none) {
  auto listener = Channel::listen(keys_of(1), ChannelEndpoint::on_this_node());
  ASSERT_TRUE(listener.ok());
  const std::byte byte{};
  const std::span<const std::byte> huge(&byte, Channel::max_message_bytes + 1);  // never read
  EXPECT_EQ(listener->send(huge, deadline_in(1ms)).error().code, ErrorCode::invalid_argument);
  for (const char* address : {"", "nonsense", "ftp://somewhere"}) {
    const auto channel = Channel::connect(keys_of(1), address);
    ASSERT_FALSE(channel.ok()) << address;
    EXPECT_EQ(channel.error().code, ErrorCode::invalid_argument) << channel.error().message;
  }
  const auto nowhere = Channel::listen(keys_of(1), ChannelEndpoint::on_network("no-such-device"));
  ASSERT_FALSE(nowhere.ok());
  EXPECT_EQ(nowhere.error().code, ErrorCode::invalid_argument) << nowhere.error().message;
}

}  // namespace
}  // namespace troupe
