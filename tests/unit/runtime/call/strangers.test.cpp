// Connections of strangers to the endpoint of a call plane.
#include <atomic>
#include <ctime>
#include <filesystem>
#include <thread>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/call/call_hub.hpp"
#include "runtime/call/future.hpp"
#include "runtime/call/unix_socket.hpp"
#include "runtime/call/unix_transport.hpp"
#include "tests/support/another_uid.hpp"
#include "tests/support/knocker.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;

class Mirror final : public CallTarget {
 public:
  void deliver(IncomingCall call) override { call.answer(std::move(call.arguments)); }
};

std::shared_ptr<CallHub> make_hub(const std::string& name, UnixTransport::Options options = {}) {
  options.keys = call_keys(*JobKeys::from_secret(Key{}),
                           fmt::format("troupe-strangers-{}-{}", ::getpid(), name));
  auto hub = *CallHub::create(std::make_unique<UnixTransport>(std::move(options)), {});
  hub->add_target(7, std::make_shared<Mirror>());
  return hub;
}

Result<Bytes> call(CallHub& hub, const std::string& endpoint) {
  Promise<Bytes> promise;
  hub.call({7, endpoint, "mirror", "Mirror"}, 0, {},
           [promise](Result<Bytes> answer) { promise.complete(std::move(answer)); });
  return promise.future().get(20s);
}

double cpu_seconds() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

/// Lowers the limit of open descriptors while it lives.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(std::size_t limit) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit lower{limit, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &lower);
  }
  ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST(Strangers, that_hold_more_connections_than_are_let_in_keep_nobody_out) {
  UnixTransport::Options options;
  options.max_strangers = 4;
  options.handshake_timeout = 60s;  // so that none is dropped by itself
  const auto server = make_hub("server", options);
  const std::size_t before = open_descriptors();
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 100; ++i) strangers.push_back(*connect_to(server->endpoint()));
  for (int i = 0; i < 8; ++i) {
    const auto client = make_hub(fmt::format("client-{}", i));
    const auto answer = call(*client, server->endpoint());
    EXPECT_TRUE(answer.ok()) << answer.error().message;
    client->stop();
  }
  // The strangers' own ends, the server's ends of four, and clients' descriptors not closed yet.
  EXPECT_LE(open_descriptors(), before + strangers.size() + options.max_strangers + 8);
  server->stop();
}

TEST(Strangers, of_another_user_are_turned_away_at_once) {
  if (!test::can_change_uid()) GTEST_SKIP() << "only root can act as another user";
  const auto server = make_hub("server");
  const auto connect = test::Knocker::to_abstract(server->endpoint());
  EXPECT_TRUE(test::as_another_uid([&] {
    const UniqueFd socket = connect();
    pollfd readable{socket.get(), POLLIN, 0};
    char byte = 0;
    return socket && ::poll(&readable, 1, 2000) == 1 && ::recv(socket.get(), &byte, 1, 0) == 0;
  }));
  server->stop();
}

TEST(Strangers, that_take_the_place_of_a_rightful_peer_delay_it_only) {
  UnixTransport::Options options;
  options.max_strangers = 1;  // each stranger displaces whichever peer is in its handshake
  const auto server = make_hub("server", options);
  std::atomic<bool> over = false;
  std::thread knocker([&] {
    while (!over) (void)connect_to(server->endpoint());
  });
  const auto client = make_hub("client");
  const auto answer = call(*client, server->endpoint());
  over = true;
  knocker.join();
  EXPECT_TRUE(answer.ok()) << answer.error().message;
  for (const auto& hub : {server, client}) hub->stop();
}

TEST(Strangers, that_find_no_descriptor_left_cost_no_cpu_time_and_are_taken_in_later) {
  const auto server = make_hub("server");
  std::vector<UniqueFd> strangers;
  {
    const DescriptorLimit limit(open_descriptors() + 3);
    while (true) {
      auto stranger = connect_to(server->endpoint());
      if (!stranger.ok()) break;  // no descriptor is left for this end either
      strangers.push_back(*std::move(stranger));
    }
    ASSERT_FALSE(strangers.empty());
    const double before = cpu_seconds();
    std::this_thread::sleep_for(500ms);  // the time over which CPU use is measured
    EXPECT_LT(cpu_seconds() - before, 0.1);
  }
  const auto client = make_hub("client");
  const auto answer = call(*client, server->endpoint());
  EXPECT_TRUE(answer.ok()) << answer.error().message;
  for (const auto& hub : {server, client}) hub->stop();
}

}  // namespace
}  // namespace troupe
