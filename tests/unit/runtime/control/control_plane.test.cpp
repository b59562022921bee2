#include "runtime/control/control_plane.hpp"

#include <atomic>

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "runtime/call/future.hpp"
#include "runtime/security/handshake.hpp"
#include "tests/support/comes_true.hpp"
#include "tests/support/knocker.hpp"

namespace {

/// Look-ups of names that end in ".silent" do not end before the test does.
troupe::Promise<void>& silence() {
  static troupe::Promise<void> over;
  return over;
}

}  // namespace

// Takes the place of the C library's in this program.
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  using Function = decltype(&getaddrinfo);
  static const auto real = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  if (name == nullptr || !std::string_view(name).ends_with(".silent")) {
    return real(name, service, hints, found);
  }
  (void)silence().future().get(std::chrono::seconds(20));
  return EAI_AGAIN;
}

namespace troupe {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr auto limit = 5s;

Key key_of(std::uint8_t number) {
  Key key{};
  key.back() = std::byte{number};
  return key;
}

AgentReady hello_of(const std::string& node) {
  AgentReady hello;
  hello.build = this_build();
  hello.node = node;
  hello.pid = 1;
  return hello;
}

/// A driver's end, and its events.
struct Driver {
  std::atomic<int> heard = 0, lost = 0;
  Promise<AgentKey> greeted;
  Promise<std::string> why_lost, why_refused;
  std::unique_ptr<ControlServer> server;

  explicit Driver(const std::optional<Key>& token = {}) {
    ControlServer::Events events{
        [this](AgentKey agent, const ControlMessage&) {
          ++heard;
          greeted.complete(agent);
        },
        [this](AgentKey, const Error& why) {
          ++lost;
          why_lost.complete(why.message);
        },
        [this](const std::string&, const Error& why) { why_refused.complete(why.message); }};
    server = *ControlServer::start("127.0.0.1", std::move(events), {}, token);
  }
  Result<std::unique_ptr<ControlClient>> connect(const AgentReady& hello, const Key& key,
                                                 std::chrono::milliseconds timeout = limit,
                                                 ControlClient::Events events = {[](const auto&) {},
                                                                                 [](auto&) {}}) {
    return ControlClient::connect(key, "127.0.0.1", server->port(), hello, std::move(events),
                                  timeout);
  }
};

TEST(ControlPlane, keeps_agents_although_strangers_knock_and_refuses_other_jobs) {
  Driver driver;
  driver.server->admit("node", key_of(1));
  Promise<void> answered;
  auto client =
      driver.connect(hello_of("node"), key_of(1), limit,
                     {[&](const ControlMessage&) { answered.complete({}); }, [](auto&) {}});
  ASSERT_TRUE(client.ok()) << client.error().message;
  const auto agent = driver.greeted.future().get(limit);
  ASSERT_TRUE(agent.ok()) << agent.error().message;
  driver.server->admit("other", key_of(2));
  const test::Knocker knocker(test::Knocker::to_port(driver.server->port()),
                              {.idle = 100, .knocks_per_second = 200});
  const auto stranger = driver.connect(hello_of("other"), key_of(7), 100ms);
  EXPECT_FALSE(stranger.ok()) << "a process of another job was let in";
  ASSERT_TRUE(driver.server->send(*agent, StopActor{}).ok());
  EXPECT_TRUE(answered.future().get(limit).ok()) << "the agent's connection was lost";
  EXPECT_EQ(driver.lost, 0);
  EXPECT_EQ(driver.heard, 1);
}

TEST(ControlPlane, lets_in_only_the_agent_it_was_told_to_and_only_once) {
  Driver driver;
  driver.server->admit("node", key_of(1));
  EXPECT_FALSE(driver.connect(hello_of("elsewhere"), key_of(1), 100ms).ok());
  driver.server->admit("node", key_of(2));  // in the place of the first
  EXPECT_FALSE(driver.connect(hello_of("node"), key_of(1), 100ms).ok());
  AgentReady other_build = hello_of("node");
  other_build.build[0] ^= std::byte{1};
  auto other = driver.connect(other_build, key_of(2));
  const auto why = driver.why_refused.future().get(limit);
  ASSERT_TRUE(why.ok());
  EXPECT_THAT(*why, HasSubstr("another build"));
  const auto agent = driver.connect(hello_of("node"), key_of(2));
  ASSERT_TRUE(agent.ok()) << agent.error().message;
  ASSERT_TRUE(driver.greeted.future().get(limit).ok());
  EXPECT_FALSE(driver.connect(hello_of("node"), key_of(2), 100ms).ok());
  EXPECT_EQ(driver.heard, 1);
}

TEST(ControlPlane, lets_agents_of_any_name_join_by_a_token_and_says_why_it_refuses_others) {
  Driver without_token;
  EXPECT_FALSE(without_token.connect(hello_of("a"), join_key(key_of(1), "a"), 100ms).ok());
  Driver driver(key_of(1));
  EXPECT_TRUE(driver.connect(hello_of("a"), join_key(key_of(1), "a")).ok());
  const auto wrong = driver.connect(hello_of("b"), join_key(key_of(2), "b"), 10s);
  EXPECT_EQ(wrong.error().code, ErrorCode::permission_denied) << "an attempt again has no use";
  EXPECT_FALSE(driver.connect(hello_of("b"), join_key(key_of(1), "a"), 100ms).ok());
  AgentReady other_build = hello_of("c");
  other_build.build[0] ^= std::byte{1};
  Promise<std::string> told;
  const auto refused =
      driver.connect(other_build, join_key(key_of(1), "c"), limit,
                     {[&](const ControlMessage& message) {
                        const auto* why = std::get_if<AgentRefused>(&message);
                        told.complete(why != nullptr ? why->why : "something else");
                      },
                      [](auto&) {}});
  const auto why = told.future().get(limit);
  ASSERT_TRUE(why.ok()) << "it was not told why";
  EXPECT_THAT(*why, HasSubstr("another build"));
}

TEST(ControlPlane, an_agent_stops_waiting_for_a_driver_when_it_is_to) {
  int asked = 0;
  const auto client =
      ControlClient::connect(key_of(1), "127.0.0.1", 1, hello_of("a"),
                             {[](const auto&) {}, [](auto&) {}}, 60s, [&] { return ++asked < 3; });
  EXPECT_EQ(client.error().code, ErrorCode::cancelled);
  EXPECT_EQ(asked, 3);
}

TEST(ControlPlane, an_agent_that_gives_up_says_what_was_wrong_and_how_long_it_waited) {
  const auto connect = [](const std::string& host) {
    const auto begin = std::chrono::steady_clock::now();
    const auto refused = ControlClient::connect(key_of(1), host, 1, hello_of("a"),
                                                {[](const auto&) {}, [](auto&) {}}, 400ms);
    EXPECT_GE(std::chrono::steady_clock::now() - begin, 200ms) << "it may come later";
    return refused.error().message;
  };
  EXPECT_THAT(connect("127.0.0.1"), HasSubstr("127.0.0.1:1 within 0.4 s: "));
  EXPECT_THAT(connect("127.0.0.1"), HasSubstr("refused"));
  // A machine without a network has no name server that answers.
  EXPECT_THAT(connect("nohost.invalid"),
              testing::AnyOf(HasSubstr("no address of 'nohost.invalid'"),
                             HasSubstr("the name server does not answer for nohost.invalid")));
}

TEST(ControlPlane, an_agent_counts_all_the_time_of_attempts_that_get_no_answer) {
  const UniqueFd silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(silent.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(silent.get(), 16), 0);
  ASSERT_EQ(::getsockname(silent.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const auto begin = std::chrono::steady_clock::now();
  const auto refused =
      ControlClient::connect(key_of(1), "127.0.0.1", ntohs(address.sin_port), hello_of("a"),
                             {[](const auto&) {}, [](auto&) {}}, 3s);
  EXPECT_FALSE(refused.ok());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 6s) << "an attempt takes two seconds";
}

TEST(ControlPlane, an_agent_does_not_wait_longer_for_a_name_server_that_is_silent) {
  const auto begin = std::chrono::steady_clock::now();
  const auto refused = ControlClient::connect(key_of(1), "head.silent", 7000, hello_of("a"),
                                              {[](const auto&) {}, [](auto&) {}}, 500ms);
  const auto took = std::chrono::steady_clock::now() - begin;
  silence().complete({});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message,
              HasSubstr("the name server does not answer for head.silent"));
  EXPECT_LT(took, 5s);
}

TEST(ControlPlane, both_ends_learn_that_the_other_is_gone) {
  Driver driver;
  driver.server->admit("node", key_of(1));
  Promise<void> lost;
  auto client = driver.connect(hello_of("node"), key_of(1), limit,
                               {[](const auto&) {}, [&](const Error&) { lost.complete({}); }});
  ASSERT_TRUE(client.ok()) << client.error().message;
  ASSERT_TRUE(driver.greeted.future().get(limit).ok());
  driver.server.reset();
  EXPECT_TRUE(lost.future().get(limit).ok());

  Driver other;
  other.server->admit("node", key_of(1));
  auto second = other.connect(hello_of("node"), key_of(1));
  ASSERT_TRUE(other.greeted.future().get(limit).ok());
  second->reset();
  EXPECT_TRUE(other.why_lost.future().get(limit).ok());
  EXPECT_EQ(other.lost, 1);
}

/// Frames of a raw end of the control link, which does nothing by itself.
struct RawEnd {
  Promise<std::shared_ptr<TlsLink>> opened;
  std::atomic<int> heartbeats = 0;

  LinkEvents events() {
    return {[this](const std::shared_ptr<TlsLink>& link) { opened.complete(link); },
            [this](const std::shared_ptr<TlsLink>&, std::vector<std::byte>& frame) {
              if (frame == encode_message(Heartbeat{})) ++heartbeats;
            },
            [](const std::shared_ptr<TlsLink>&, const Error&) {}};
  }
};

TEST(ControlPlane, a_driver_sends_heartbeats_and_gives_an_agent_up_that_does_not_answer) {
  Driver driver;
  driver.server->admit("node", key_of(1));
  driver.server->admit("other", key_of(2));
  auto answering = driver.connect(hello_of("other"), key_of(2));
  ASSERT_TRUE(answering.ok()) << answering.error().message;
  RawEnd silent;
  const auto loop = *LinkLoop::start();
  auto link = *loop->connect("127.0.0.1", driver.server->port(), {"agent", "node"},
                             {"driver", "job"}, key_of(1), silent.events());
  ASSERT_TRUE(silent.opened.future().get(limit).ok());
  ASSERT_TRUE(link->send(LinkFrame(encode_message(hello_of("node")))).ok());
  const auto begin = std::chrono::steady_clock::now();
  const auto why = driver.why_lost.future().get(limit);
  const auto took = std::chrono::steady_clock::now() - begin;
  ASSERT_TRUE(why.ok()) << "it was not given up";
  EXPECT_THAT(*why, HasSubstr("agent/node was silent for 1800 ms"));
  EXPECT_GE(took, 1700ms);
  EXPECT_LT(took, 4s);
  EXPECT_GE(silent.heartbeats, 3);
  EXPECT_EQ(driver.lost, 1) << "an agent that answers is kept";
  loop->stop();
}

TEST(ControlPlane, a_driver_that_takes_long_over_a_message_sends_heartbeats_meanwhile) {
  RawEnd agent;
  Promise<bool> was_beating;
  const auto server = *ControlServer::start(
      "127.0.0.1", {[&](AgentKey, const ControlMessage&) {
                      const int before = agent.heartbeats;
                      was_beating.complete(
                          test::comes_true([&] { return agent.heartbeats >= before + 3; }, limit));
                    },
                    [](AgentKey, const Error&) {}, [](const std::string&, const Error&) {}});
  server->admit("node", key_of(1));
  const auto loop = *LinkLoop::start();
  auto link = *loop->connect("127.0.0.1", server->port(), {"agent", "node"}, {"driver", "job"},
                             key_of(1), agent.events());
  ASSERT_TRUE(link->send(LinkFrame(encode_message(hello_of("node")))).ok());
  EXPECT_TRUE(*was_beating.future().get(60s));
  loop->stop();
}

TEST(ControlPlane, an_agent_answers_each_heartbeat_and_gives_a_silent_driver_up) {
  RawEnd driver;
  const auto loop = *LinkLoop::start();
  const auto port = *loop->listen(
      "driver", "127.0.0.1", [](const LinkPeer&) { return std::optional(key_of(1)); },
      driver.events());
  Promise<std::string> lost;
  auto client = ControlClient::connect(
      key_of(1), "127.0.0.1", port, hello_of("node"),
      {[](const auto&) {}, [&](const Error& why) { lost.complete(why.message); }}, limit);
  ASSERT_TRUE(client.ok()) << client.error().message;
  const auto link = *driver.opened.future().get(limit);
  constexpr int sent = 20;
  for (int i = 0; i < sent; ++i) {
    ASSERT_TRUE(link->send(LinkFrame(encode_message(Heartbeat{}))).ok());
  }
  auto why = lost.future();
  const auto begin = std::chrono::steady_clock::now();
  while (!why.ready() && std::chrono::steady_clock::now() - begin < limit) {
    const auto left = (*client)->check_driver();
    std::this_thread::sleep_for(std::min(left, heartbeat_interval));
  }
  const auto took = std::chrono::steady_clock::now() - begin;
  ASSERT_TRUE(why.ready()) << "the driver was not given up";
  EXPECT_THAT(*why.get(limit), HasSubstr("driver/job was silent for 1800 ms"));
  EXPECT_GE(took, 1700ms);
  EXPECT_EQ(driver.heartbeats, sent);
  loop->stop();
}

TEST(ControlPlane, an_agent_that_speaks_as_the_driver_is_disconnected) {
  Driver driver;
  driver.server->admit("node", key_of(1));
  auto client = driver.connect(hello_of("node"), key_of(1));
  ASSERT_TRUE(client.ok()) << client.error().message;
  ASSERT_TRUE(driver.greeted.future().get(limit).ok());
  (*client)->send(StopProcess{1, true});
  const auto why = driver.why_lost.future().get(limit);
  ASSERT_TRUE(why.ok());
  EXPECT_THAT(*why, HasSubstr("not for this end"));
  EXPECT_EQ(driver.heard, 1);
}

}  // namespace
}  // namespace troupe
