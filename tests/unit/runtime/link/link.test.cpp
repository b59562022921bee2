#include "runtime/link/link.hpp"

#include <cerrno>
#include <cstring>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include "runtime/call/future.hpp"
#include "tests/support/knocker.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

constexpr auto limit = 10s;
const LinkPeer driver{"driver", "job"};
const LinkPeer agent{"agent", "node0"};

Bytes bytes_of(std::string_view text) {
  const auto span = std::as_bytes(std::span(text));
  return {span.begin(), span.end()};
}

std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Collects the events of one end.
struct End {
  Promise<std::shared_ptr<TlsLink>> open;
  struct Ending {
    ErrorCode code;
    std::string message;
  };
  Promise<Ending> closed;
  std::atomic<int> times_closed = 0;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Bytes> frames;

  LinkEvents events() {
    return {[this](const std::shared_ptr<TlsLink>& link) { open.complete(link); },
            [this](const std::shared_ptr<TlsLink>&, Bytes& frame) {
              std::lock_guard lock(mutex);
              frames.push_back(std::move(frame));
              changed.notify_all();
            },
            [this](const std::shared_ptr<TlsLink>&, const Error& why) {
              ++times_closed;
              closed.complete(Ending{why.code, why.message});
            }};
  }
  std::shared_ptr<TlsLink> link() {
    auto result = open.future().get(limit);
    EXPECT_TRUE(result.ok());
    return result.ok() ? *result : nullptr;
  }
  std::vector<Bytes> wait_for(std::size_t count) {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, limit, [&] { return frames.size() >= count; }));
    return frames;
  }
};

class Links : public ::testing::Test {
 protected:
  Links() : keys_(*JobKeys::generate()) {}
  void start(LinkLimits limits = {}) {
    server_ = *LinkLoop::start(limits);
    client_ = *LinkLoop::start(limits);
    port_ = *server_->listen(
        "test", "127.0.0.1",
        [this](const LinkPeer& peer) -> std::optional<Key> {
          if (peer.role != "agent") return std::nullopt;
          return link_key(keys_, driver, peer);
        },
        served_.events());
  }
  Result<std::shared_ptr<TlsLink>> connect(End& end, const LinkPeer& self, const Key& key) {
    return client_->connect("127.0.0.1", port_, self, driver, key, end.events());
  }
  Key key_of(const LinkPeer& peer) const { return link_key(keys_, driver, peer); }

  const JobKeys keys_;
  End served_, connected_;  // outlive the loops
  std::unique_ptr<LinkLoop> server_, client_;
  std::uint16_t port_ = 0;
};

TEST_F(Links, carry_frames_both_ways_in_order_and_name_the_peer) {
  start();
  auto link = connect(connected_, agent, key_of(agent));
  ASSERT_TRUE(link.ok()) << link.error().message;
  ASSERT_TRUE((*link)->send(LinkFrame(bytes_of("before it is open"))).ok());
  const auto at_server = served_.link();
  EXPECT_EQ(at_server->peer(), agent);
  EXPECT_EQ((*link)->peer(), driver);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE((*link)->send(LinkFrame(bytes_of(std::to_string(i)))).ok());
    ASSERT_TRUE(at_server->send(LinkFrame(bytes_of("answer " + std::to_string(i)))).ok());
  }
  const auto up = served_.wait_for(1001);
  const auto down = connected_.wait_for(1000);
  EXPECT_EQ(text_of(up[0]), "before it is open");
  EXPECT_EQ(text_of(up[1000]), "999");
  EXPECT_EQ(text_of(down[999]), "answer 999");
}

TEST_F(Links, carry_large_frames_that_the_sender_keeps) {
  start();
  auto link = connect(connected_, agent, key_of(agent));
  ASSERT_TRUE(link.ok()) << link.error().message;
  std::vector<std::uint32_t> numbers(std::size_t{8} << 20);
  std::iota(numbers.begin(), numbers.end(), 0U);
  const auto owner = std::make_shared<const std::vector<std::uint32_t>>(std::move(numbers));
  const auto bytes = std::as_bytes(std::span(*owner));
  ASSERT_TRUE((*link)->send(LinkFrame(bytes, owner)).ok());
  ASSERT_TRUE((*link)->send(LinkFrame(bytes_of("behind"))).ok() ||
              (*link)->send(LinkFrame(bytes_of("behind")), limit).ok());
  const auto frames = served_.wait_for(2);
  ASSERT_EQ(frames[0].size(), bytes.size());
  EXPECT_EQ(std::memcmp(frames[0].data(), bytes.data(), bytes.size()), 0);
  EXPECT_EQ(text_of(frames[1]), "behind");
}

TEST_F(Links, refuse_another_key_another_role_and_another_name) {
  start();
  const auto other = *JobKeys::generate();
  const LinkPeer worker{"process", "17"};
  const struct {
    LinkPeer self;
    Key key;
    const char* what;
  } strangers[] = {{agent, link_key(other, driver, agent), "the key of another job"},
                   {worker, key_of(worker), "a role that may not come here"},
                   {agent, key_of({"agent", "node1"}), "the key of another agent"},
                   {agent, link_key(keys_, agent, driver), "the key of the other direction"}};
  for (const auto& stranger : strangers) {
    End end;
    auto link = connect(end, stranger.self, stranger.key);
    ASSERT_TRUE(link.ok()) << link.error().message;
    const auto why = end.closed.future().get(limit);
    ASSERT_TRUE(why.ok()) << stranger.what << " was let in";
    EXPECT_FALSE(end.open.future().ready()) << stranger.what;
    client_->stop();
    client_ = *LinkLoop::start();
  }
  EXPECT_FALSE(served_.open.future().ready());
  EXPECT_EQ(served_.times_closed, 0) << "strangers are not told to the listener's user";
}

TEST_F(Links, a_listener_without_the_key_is_refused_by_who_connects) {
  start();
  // It admits the agent with another key: the agent must notice.
  const auto wrong = *JobKeys::generate();
  auto impostor = *LinkLoop::start();
  End told;
  const auto port = *impostor->listen(
      "impostor", "127.0.0.1", [&](const LinkPeer& peer) { return link_key(wrong, driver, peer); },
      told.events());
  auto link =
      client_->connect("127.0.0.1", port, agent, driver, key_of(agent), connected_.events());
  ASSERT_TRUE(link.ok()) << link.error().message;
  (void)(*link)->send(LinkFrame(bytes_of("a secret")));  // the link may be over by now
  const auto why = connected_.closed.future().get(limit);
  ASSERT_TRUE(why.ok());
  EXPECT_FALSE(told.open.future().ready());
  impostor->stop();
}

TEST_F(Links, tell_their_end_exactly_once_with_the_cause) {
  start();
  auto link = connect(connected_, agent, key_of(agent));
  ASSERT_TRUE(link.ok()) << link.error().message;
  const auto at_server = served_.link();
  at_server->close();
  at_server->close();
  const auto here = served_.closed.future().get(limit);
  ASSERT_TRUE(here.ok());
  EXPECT_EQ(here->code, ErrorCode::cancelled);
  const auto there = connected_.closed.future().get(limit);
  ASSERT_TRUE(there.ok());
  EXPECT_EQ(there->code, ErrorCode::peer_died);
  const auto sent = (*link)->send(LinkFrame(bytes_of("too late")));
  ASSERT_FALSE(sent.ok());
  EXPECT_EQ(sent.error().code, ErrorCode::peer_died);
  client_->stop();
  server_->stop();
  EXPECT_EQ(served_.times_closed, 1);
  EXPECT_EQ(connected_.times_closed, 1);
}

TEST_F(Links, what_is_sent_from_an_event_leaves_although_nothing_else_wakes_the_loop) {
  start();
  auto link = connect(connected_, agent, key_of(agent));
  ASSERT_TRUE(link.ok()) << link.error().message;
  ASSERT_NE(served_.link(), nullptr);
  End other;
  LinkEvents events = other.events();
  events.on_closed = [&](const std::shared_ptr<TlsLink>&, const Error& why) {
    (void)(*link)->send(LinkFrame(bytes_of("the other is closed")));
    other.closed.complete(End::Ending{why.code, why.message});
  };
  auto second =
      client_->connect("127.0.0.1", port_, agent, driver, key_of(agent), std::move(events));
  ASSERT_TRUE(second.ok()) << second.error().message;
  ASSERT_TRUE(other.open.future().get(limit).ok());
  (*second)->close();
  EXPECT_EQ(served_.wait_for(1).size(), 1U);
  client_->stop();
}

TEST_F(Links, nobody_at_the_port_is_told_as_an_end) {
  start();
  server_->stop();
  auto link = connect(connected_, agent, key_of(agent));
  ASSERT_TRUE(link.ok()) << link.error().message;
  const auto why = connected_.closed.future().get(limit);
  ASSERT_TRUE(why.ok());
  EXPECT_EQ(why->code, ErrorCode::peer_died);
  EXPECT_THAT(why->message, HasSubstr("refused"));
}

TEST_F(Links, hundreds_that_come_at_once_may_all_be_slow_with_their_handshake) {
  start();
  constexpr std::size_t count = 256;
  std::vector<UniqueFd> slow;
  for (std::size_t i = 0; i < count; ++i) {
    UniqueFd& socket =
        slow.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port_);
    const int begun =
        ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    ASSERT_TRUE(begun == 0 || errno == EINPROGRESS);
    pollfd connected{socket.get(), POLLOUT, 0};
    ASSERT_EQ(::poll(&connected, 1, 10000), 1);
    ASSERT_EQ(::send(socket.get(), "\x16\x03", 2, MSG_NOSIGNAL), 2);  // begins like TLS
  }
  // One that comes last is served after all of them have been seen.
  auto link = connect(connected_, agent, key_of(agent));
  ASSERT_TRUE(link.ok()) << link.error().message;
  EXPECT_NE(served_.link(), nullptr);
  for (std::size_t i = 0; i < count; ++i) {
    char byte = 0;
    EXPECT_TRUE(::recv(slow[i].get(), &byte, 1, 0) < 0 && errno == EAGAIN)
        << "number " << i << " was dropped";
  }
}

TEST_F(Links, a_full_queue_says_so_and_waits_only_as_long_as_asked) {
  LinkLimits limits;
  limits.max_queued_bytes = 1 << 20;
  limits.handshake_timeout = 300ms;
  start(limits);
  // A listener that never reads: the socket's buffers fill, then the queue.
  UniqueFd silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(::bind(silent.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(::listen(silent.get(), 1), 0);
  ASSERT_EQ(::getsockname(silent.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  auto link = client_->connect("127.0.0.1", ntohs(address.sin_port), agent, driver, key_of(agent),
                               connected_.events());
  ASSERT_TRUE(link.ok());
  ASSERT_TRUE((*link)->send(LinkFrame(Bytes(1 << 19))).ok());
  const auto start = std::chrono::steady_clock::now();
  const auto sent = (*link)->send(LinkFrame(Bytes(1 << 20)), 50ms);
  ASSERT_FALSE(sent.ok());
  EXPECT_EQ(sent.error().code, ErrorCode::resource_exhausted);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 50ms);
  const auto why = connected_.closed.future().get(limit);
  ASSERT_TRUE(why.ok());
  EXPECT_EQ(why->code, ErrorCode::timed_out) << "it is given up after the handshake's time";
}

TEST_F(Links, a_thread_that_takes_a_turn_gets_the_events_itself) {
  start();
  std::thread::id ran_on;
  int frames = 0;
  LinkEvents events;
  events.on_frame = [&](const std::shared_ptr<TlsLink>&, Bytes&) {
    ran_on = std::this_thread::get_id();
    ++frames;
  };
  auto link = client_->connect("127.0.0.1", port_, agent, driver, key_of(agent), events);
  ASSERT_TRUE(link.ok()) << link.error().message;
  const auto at_server = served_.link();
  LinkTurn turn(*client_);
  ASSERT_TRUE(at_server->send(LinkFrame(bytes_of("to you"))).ok());
  ASSERT_TRUE((*link)->send(LinkFrame(bytes_of("to the server"))).ok());
  const auto until = std::chrono::steady_clock::now() + limit;
  while (frames == 0 && std::chrono::steady_clock::now() < until) turn.step(until);
  EXPECT_EQ(ran_on, std::this_thread::get_id());
  EXPECT_EQ(text_of(served_.wait_for(1)[0]), "to the server");
}

TEST_F(Links, what_is_asked_for_as_a_turn_ends_does_not_wait_until_the_loop_has_rested) {
  start();
  auto fastest = std::chrono::nanoseconds(limit);
  for (int round = 0; round < 20; ++round) {
    Promise<void> open, closed;
    LinkEvents of_second;
    of_second.on_open = [&](auto&) { open.complete({}); };
    of_second.on_closed = [&](auto&, const Error&) { closed.complete({}); };
    const LinkPeer first{"agent", fmt::format("first{}", round)};
    const LinkPeer second{"agent", fmt::format("second{}", round)};
    const auto held =
        client_->connect("127.0.0.1", port_, second, driver, key_of(second), of_second);
    ASSERT_TRUE(held.ok()) << held.error().message;
    ASSERT_TRUE(open.future().get(limit).ok());
    LinkEvents of_first;
    of_first.on_closed = [&](auto&, const Error&) { (*held)->close(); };
    std::chrono::steady_clock::time_point began;
    {
      LinkTurn turn(*client_);
      const auto link =
          client_->connect("127.0.0.1", port_, first, driver, key_of(first), of_first);
      ASSERT_TRUE(link.ok()) << link.error().message;
      (*link)->close();
      began = std::chrono::steady_clock::now();
    }
    ASSERT_TRUE(closed.future().get(limit).ok());
    fastest = std::min(fastest, std::chrono::steady_clock::now() - began);
  }
  EXPECT_LT(fastest, 5ms) << "every time the loop rested first";
}

TEST_F(Links, a_crowd_of_strangers_keeps_nobody_out) {
  start();
  test::Knocker knocker(test::Knocker::to_port(port_), {.idle = 300, .knocks_per_second = 500});
  for (int i = 0; i < 20; ++i) {
    // On a busy machine a newcomer may be displaced before it sends anything: it retries, as agents
    // do.
    bool is_in = false;
    for (int attempt = 0; attempt < 10 && !is_in; ++attempt) {
      End end;
      auto link = connect(end, agent, key_of(agent));
      ASSERT_TRUE(link.ok()) << link.error().message;
      is_in = end.open.future().get(std::chrono::seconds(1)).ok();
      client_->stop();
      client_ = *LinkLoop::start();
    }
    EXPECT_TRUE(is_in);
  }
  EXPECT_GT(knocker.connections(), 300);
}

TEST(LinkPeer, is_role_and_name_and_nothing_else) {
  EXPECT_EQ(LinkPeer::parse("agent/node0")->text(), "agent/node0");
  EXPECT_EQ(LinkPeer::parse("agent/a/b")->name, "a/b");
  for (const std::string text : {"", "agent", "agent/", "/node0", "Agent/node0", "agent/a\nb"}) {
    EXPECT_FALSE(LinkPeer::parse(text).ok()) << text;
  }
  EXPECT_FALSE(LinkPeer::parse("agent/" + std::string(129, 'a')).ok());
}

TEST(LinkKey, belongs_to_one_pair_and_direction) {
  const auto keys = *JobKeys::generate();
  const Key key = link_key(keys, driver, agent);
  EXPECT_EQ(key, link_key(keys, driver, agent));
  EXPECT_NE(key, link_key(keys, agent, driver));
  EXPECT_NE(key, link_key(keys, driver, {"agent", "node1"}));
  EXPECT_NE(link_key(keys, {"a", "b/c"}, agent), link_key(keys, {"a", "b"}, {"c", "agent/node0"}));
}

}  // namespace
}  // namespace troupe
