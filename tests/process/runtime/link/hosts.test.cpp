#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>

#include "runtime/call/future.hpp"
#include "runtime/link/link.hpp"
#include "runtime/process/unique_fd.hpp"
#include "runtime/security/plane_keys.hpp"
#include "tests/support/hosts/test_hosts.hpp"

namespace troupe::test {
namespace {

using namespace std::chrono_literals;
using Bytes = std::vector<std::byte>;

constexpr auto limit = 10s;
const LinkPeer server_peer{"driver", "job"}, client_peer{"agent", "node0"};

/// A link from this host to h1, whose end there is of this process, too.
class LinksOfHosts : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto missing = missing_hosts(); !missing.empty()) GTEST_SKIP() << missing;
    LinkLimits limits;
    limits.host_timeout = 2s;
    server_ = *LinkLoop::start(limits);
    client_ = *LinkLoop::start(limits);
    LinkEvents events;
    events.on_open = [](const auto&) {};
    events.on_closed = [](const auto&, const Error&) {};
    events.on_frame = [this](const std::shared_ptr<TlsLink>&, Bytes&) {
      came_.complete({});
      if (stops_) (void)goes_on_.future().wait(limit);
    };
    Result<std::uint16_t> port = fail(ErrorCode::io, "no namespace");
    // Sockets belong to the namespace of the thread that makes them.
    std::thread([&] {
      const UniqueFd host(::open("/run/netns/h1", O_RDONLY | O_CLOEXEC));
      if (::setns(host.get(), CLONE_NEWNET) != 0) return;
      port = server_->listen(
          "test", host_address(1),
          [this](const LinkPeer& peer) { return link_key(keys_, server_peer, peer); }, events);
    }).join();
    ASSERT_TRUE(port.ok()) << port.error().message;
    events.on_closed = [this](const auto&, const Error& why) { closed_.complete(why.message); };
    auto link = client_->connect(host_address(1), *port, client_peer, server_peer,
                                 link_key(keys_, server_peer, client_peer), events);
    ASSERT_TRUE(link.ok()) << link.error().message;
    link_ = *std::move(link);
  }
  void TearDown() override {
    if (!client_) return;
    set_link(1, true);
    goes_on_.complete({});
    link_ = nullptr;
    client_ = nullptr;
    server_ = nullptr;
  }

  const JobKeys keys_ = *JobKeys::generate();
  std::atomic<bool> stops_ = false;
  Promise<void> came_, goes_on_;
  Promise<std::string> closed_;
  std::unique_ptr<LinkLoop> server_, client_;
  std::shared_ptr<TlsLink> link_;
};

TEST_F(LinksOfHosts, end_when_the_host_is_gone_while_data_is_under_way) {
  ASSERT_TRUE(link_->send(LinkFrame(Bytes(10))).ok());
  ASSERT_TRUE(came_.future().get(limit).ok());
  set_link(1, false);
  ASSERT_TRUE(link_->send(LinkFrame(Bytes(10))).ok());
  const auto why = closed_.future().get(limit);
  ASSERT_TRUE(why.ok()) << "the link is still there";
  EXPECT_NE(why->find("acknowledged nothing"), std::string::npos) << *why;
}

TEST_F(LinksOfHosts, are_kept_while_the_peer_is_stopped_and_its_buffers_are_full) {
  stops_ = true;
  int sent = 0;  // MiB; until the kernel's buffers and the link's queue are full
  while (sent < 1024 && link_->send(LinkFrame(Bytes(1 << 20))).ok()) ++sent;
  ASSERT_LT(sent, 1024);
  const auto why = closed_.future().get(5s);
  EXPECT_FALSE(why.ok()) << *why;
  EXPECT_GT(link_->queued_bytes(), 0);
}

}  // namespace
}  // namespace troupe::test
