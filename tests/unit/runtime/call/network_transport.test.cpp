#include "runtime/call/network_transport.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <future>
#include <latch>
#include <mutex>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/link/link.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;

constexpr auto limit = 10s;

/// One process of a job: its transport, and what it was told. Echoes frames if asked to.
class Process {
 public:
  Process(const Key& secret, const NetworkAddress& own, bool echoes = false)
      : Process(call_keys(*JobKeys::from_secret(secret), *draw_call_name("job")), own, echoes) {}
  Process(CallKeys keys, const NetworkAddress& own, bool echoes = false) {
    transport_ = *make_network_transport(std::move(keys), own);
    EXPECT_TRUE(transport_
                    ->start({[this, echoes](const std::shared_ptr<Link>& link, Bytes& frame) {
                               EXPECT_TRUE(transport_->on_own_thread());
                               if (echoes) {
                                 EXPECT_TRUE(link->send(frame, {}, limit).ok());
                               }
                               std::lock_guard lock(mutex_);
                               frames_.push_back(std::move(frame));
                               changed_.notify_all();
                             },
                             [this](const std::shared_ptr<Link>&, const Error& why) {
                               EXPECT_TRUE(transport_->on_own_thread());
                               std::lock_guard lock(mutex_);
                               ends_.push_back(why);
                               changed_.notify_all();
                             }})
                    .ok());
  }
  ~Process() { transport_->stop(); }

  Transport& transport() { return *transport_; }
  /// The first `count` frames, or fewer if they do not come.
  std::vector<Bytes> frames(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [&] { return frames_.size() >= count; });
    return frames_;
  }
  std::vector<Error> ends(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [&] { return ends_.size() >= count; });
    return ends_;
  }

 private:
  std::unique_ptr<Transport> transport_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Bytes> frames_;
  std::vector<Error> ends_;
};

Key key_of(std::uint8_t number) {
  Key key{};
  key.fill(std::byte{number});
  return key;
}

Bytes bytes_of(std::uint8_t value, std::size_t count) { return Bytes(count, std::byte{value}); }

TEST(NetworkTransport, frames_go_to_another_locality_and_back_in_order) {
  Process first(key_of(1), {"here", "127.0.0.1"});
  Process second(key_of(1), {"there", "127.0.0.1"}, true);
  const auto link = first.transport().connect(second.transport().endpoint());
  std::vector<Bytes> sent;
  for (std::uint8_t i = 0; i < 50; ++i) {
    sent.push_back(bytes_of(i, std::size_t{1} << (i % 20)));
    ASSERT_TRUE(link->send(sent.back(), {}, limit).ok());
  }
  EXPECT_EQ(second.frames(50), sent);
  EXPECT_EQ(first.frames(50), sent);
  EXPECT_TRUE(first.transport().flush(limit).ok());
}

TEST(NetworkTransport, a_process_of_the_same_locality_is_reached_without_the_network) {
  Process first(key_of(1), {"here", "127.0.0.1"});
  Process second(key_of(1), {"here", "127.0.0.1"}, true);
  std::string endpoint = second.transport().endpoint();
  endpoint.replace(endpoint.rfind(' ') + 1, std::string::npos, 1, '1');  // a port of nobody
  ASSERT_TRUE(first.transport().connect(endpoint)->send(bytes_of(1, 3), {}, limit).ok());
  EXPECT_EQ(first.frames(1), std::vector<Bytes>{bytes_of(1, 3)});
}

TEST(NetworkTransport, each_end_is_told_once_that_a_link_is_over) {
  Process first(key_of(1), {"here", "127.0.0.1"});
  auto second = std::make_unique<Process>(key_of(1), NetworkAddress{"there", "127.0.0.1"});
  const auto link = first.transport().connect(second->transport().endpoint());
  ASSERT_TRUE(link->send(bytes_of(1, 3), {}, limit).ok());
  ASSERT_EQ(second->frames(1).size(), 1U);
  second.reset();
  ASSERT_EQ(first.ends(1).size(), 1U);
  EXPECT_EQ(link->send(bytes_of(1, 3), {}, limit).error().code, ErrorCode::peer_died);
  EXPECT_EQ(first.ends(1).size(), 1U);
}

TEST(NetworkTransport, a_process_of_another_job_is_not_let_in) {
  Process first(key_of(1), {"here", "127.0.0.1"});
  Process second(key_of(2), {"there", "127.0.0.1"});
  const auto link = first.transport().connect(second.transport().endpoint());
  (void)link->send(bytes_of(1, 3), {}, limit);
  EXPECT_EQ(first.ends(1).size(), 1U);
  EXPECT_TRUE(second.frames(0).empty());
}

TEST(NetworkTransport, an_endpoint_that_only_unix_sockets_lead_to_ends_the_link_at_once) {
  Process first(key_of(1), {"here", "127.0.0.1"});
  const auto link = first.transport().connect("troupe-elsewhere");
  const auto ends = first.ends(1);
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_EQ(ends.front().code, ErrorCode::not_found);
}

TEST(NetworkTransport, a_flush_ends_though_others_keep_the_link_busy) {
  const auto job = *JobKeys::from_secret(key_of(1));
  const std::string name = *draw_call_name("job");
  Process sender(key_of(1), {"here", "127.0.0.1"});
  const auto loop = *LinkLoop::start();
  std::promise<std::shared_ptr<Link>> made;
  const auto link = made.get_future().share();
  std::atomic<bool> is_flushed = false;
  // More than the kernel takes. Whenever one has come, one is queued and the one after it follows:
  // the queue is never empty.
  const Bytes large(std::size_t{16} << 20);
  const auto port = loop->listen("a busy process", "127.0.0.1",
                                 [&](const LinkPeer& peer) -> std::optional<Key> {
                                   return call_pair_key(call_listener_key(job, name), peer.name);
                                 },
                                 {nullptr,
                                  [&](const std::shared_ptr<TlsLink>&, std::vector<std::byte>&) {
                                    if (!is_flushed) (void)link.get()->send(large, {}, limit);
                                  },
                                  nullptr});
  ASSERT_TRUE(port.ok()) << port.error().message;
  made.set_value(sender.transport().connect(fmt::format("{} there 127.0.0.1 {}", name, *port)));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(link.get()->send(large, {}, limit).ok());
  const auto flushed = sender.transport().flush(limit);
  is_flushed = true;
  EXPECT_TRUE(flushed.ok()) << flushed.error().message;
  loop->stop();
}

TEST(NetworkTransport, a_flush_with_nothing_unsent_waits_for_nobody) {
  for (const std::string locality : {"here", "there"}) {
    Process first(key_of(1), {"here", "127.0.0.1"});
    Process second(key_of(1), {locality, "127.0.0.1"}, true);
    const auto link = first.transport().connect(second.transport().endpoint());
    ASSERT_TRUE(link->send(bytes_of(1, 3), {}, limit).ok());
    ASSERT_EQ(first.frames(1).size(), 1U);
    std::latch busy(1), go_on(1);
    first.transport().run_after(0ms, [&] {
      busy.count_down();
      go_on.wait();
    });
    busy.wait();
    EXPECT_TRUE(first.transport().flush(50ms).ok()) << locality;
    go_on.count_down();
  }
}

TEST(NetworkTransport, a_link_may_be_used_when_its_transport_is_gone) {
  for (const std::string locality : {"here", "there"}) {
    Process second(key_of(1), {locality, "127.0.0.1"}, true);
    auto first = std::make_unique<Process>(key_of(1), NetworkAddress{"here", "127.0.0.1"});
    const auto link = first->transport().connect(second.transport().endpoint());
    ASSERT_TRUE(link->send(bytes_of(1, 3), {}, limit).ok());
    ASSERT_EQ(first->frames(1).size(), 1U);
    first.reset();
    EXPECT_FALSE(link->send(bytes_of(1, 3), {}, limit).ok()) << locality;
    link->close();
  }
}

class ImpostorTest : public testing::TestWithParam<std::string> {};

TEST_P(ImpostorTest, does_not_get_in_under_the_name_of_another_process_of_the_job) {
  const auto job = *JobKeys::from_secret(key_of(1));
  Process server(key_of(1), {"here", "127.0.0.1"});
  const std::string server_name =
      server.transport().endpoint().substr(0, server.transport().endpoint().find(' '));
  // All that the impostor knows: its own keys, and the names of the others.
  const std::string own = *draw_call_name("job");
  CallKeys keys = call_keys(job, own);
  const Key pair = call_pair_key(call_listener_key(job, server_name), own);
  keys.name = *draw_call_name("job");
  keys.ask = [pair](const std::string&, const CallKeys::Answer& answer) { answer(pair); };
  Process impostor(keys, {GetParam(), "127.0.0.1"});
  const auto link = impostor.transport().connect(server.transport().endpoint());
  (void)link->send(bytes_of(1, 3), {}, limit);
  EXPECT_EQ(impostor.ends(1).size(), 1U);
  EXPECT_TRUE(server.frames(0).empty());
}

INSTANTIATE_TEST_SUITE_P(NetworkTransport, ImpostorTest, testing::Values("here", "there"),
                         [](const auto& info) { return info.param; });

TEST(NetworkTransport, frames_wait_for_a_key_that_comes_late) {
  const auto job = *JobKeys::from_secret(key_of(1));
  for (const std::string locality : {"here", "there"}) {
    Process server(key_of(1), {"here", "127.0.0.1"}, true);
    CallKeys keys = call_keys(job, *draw_call_name("job"));
    CallKeys::Answer answer;
    std::string listener;
    std::promise<void> asked;
    keys.ask = [&](const std::string& whose, CallKeys::Answer to) {
      listener = whose;
      answer = std::move(to);
      asked.set_value();
    };
    Process client(keys, {locality, "127.0.0.1"});
    const auto link = client.transport().connect(server.transport().endpoint());
    ASSERT_EQ(asked.get_future().wait_for(limit), std::future_status::ready);
    ASSERT_TRUE(link->send(bytes_of(1, 3), {}, limit).ok());
    ASSERT_TRUE(link->send(bytes_of(2, 3), {}, limit).ok());
    EXPECT_TRUE(server.frames(0).empty());
    EXPECT_EQ(client.transport().flush(20ms).error().code, ErrorCode::timed_out) << locality;
    answer(call_pair_key(call_listener_key(job, listener), keys.name));
    EXPECT_EQ(client.frames(2), (std::vector<Bytes>{bytes_of(1, 3), bytes_of(2, 3)})) << locality;
    EXPECT_TRUE(client.transport().flush(limit).ok()) << locality;
  }
}

TEST(NetworkTransport, a_sender_waits_for_room_while_a_link_is_not_there_yet) {
  const auto job = *JobKeys::from_secret(key_of(1));
  Process server(key_of(1), {"here", "127.0.0.1"});
  for (const std::string locality : {"here", "there"}) {
    CallKeys keys = call_keys(job, *draw_call_name("job"));
    CallKeys::Answer answer;
    std::promise<std::string> asked;
    keys.ask = [&](const std::string& whose, CallKeys::Answer to) {
      answer = std::move(to);
      asked.set_value(whose);
    };
    Process client(keys, {locality, "127.0.0.1"});
    const auto link = client.transport().connect(server.transport().endpoint());
    const Key key = call_pair_key(call_listener_key(job, asked.get_future().get()), keys.name);
    const Bytes large(std::size_t{16} << 20);
    std::size_t sent = 0;
    Result<void> last;
    while (sent < 10 && (last = link->send(large, {}, 20ms)).ok()) ++sent;
    ASSERT_FALSE(last.ok()) << locality;
    EXPECT_EQ(last.error().code, ErrorCode::resource_exhausted) << last.error().message;
    std::promise<Result<void>> waited;
    std::jthread waits([&] { waited.set_value(link->send(bytes_of(1, 3), {}, limit)); });
    answer(key);
    EXPECT_TRUE(waited.get_future().get().ok()) << locality;
    EXPECT_TRUE(client.transport().flush(limit).ok()) << locality;
  }
}

TEST(NetworkTransport, a_link_whose_key_is_refused_ends) {
  Process server(key_of(1), {"here", "127.0.0.1"});
  for (const std::string locality : {"here", "there"}) {
    CallKeys keys = call_keys(*JobKeys::from_secret(key_of(1)), *draw_call_name("job"));
    keys.ask = [](const std::string&, const CallKeys::Answer& answer) {
      answer(fail(ErrorCode::permission_denied, "not for you"));
    };
    Process client(keys, {locality, "127.0.0.1"});
    const auto link = client.transport().connect(server.transport().endpoint());
    (void)link->send(bytes_of(1, 3), {}, limit);
    const auto ends = client.ends(1);
    ASSERT_EQ(ends.size(), 1U);
    EXPECT_EQ(ends.front().message, "not for you");
  }
}

}  // namespace
}  // namespace troupe
