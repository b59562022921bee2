// Actor calls beside the kernel's limit (a raw socketpair ping-pong) in the same run.
// With HOST as argument (as ssh knows it) the actors are there, calls cross the network by TLS, and
// the limits are echoes over plain TCP: `tests/support/hosts/with-hosts 1 .../runtime_calls h1`.
// Ray's figures on a two-core machine: Ray 2.60's own `ray microbenchmark`, 1:1 actor calls sync
// 1,205/s (p50 0.81 ms, p99 4.0 ms) and async 3,923/s; first actor 0.15 s, init 2.7 s.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/actor/cluster.hpp"
#include "runtime/link/local_address.hpp"
#include "runtime/node/ssh_node_starter.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class Echo {
 public:
  explicit Echo(ActorContext& context) : context_(context) {}
  int echo(int value) { return value; }
  /// Echoes what comes over one plain TCP connection; returns "ADDRESS PORT".
  Result<std::string> listen_for_pings();

  static constexpr std::string_view actor_type = "Echo";
  using Methods = troupe::Methods<&Echo::echo, &Echo::listen_for_pings>;

 private:
  ActorContext& context_;
};

void echo_until_closed(int socket) {
  std::vector<char> buffer(64 << 10);
  for (ssize_t got = 0; (got = ::read(socket, buffer.data(), buffer.size())) > 0;) {
    if (::write(socket, buffer.data(), static_cast<std::size_t>(got)) != got) return;
  }
}

Result<std::string> Echo::listen_for_pings() {
  sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {}, .sin_zero = {}};
  ::inet_pton(AF_INET, context_.node_address().c_str(), &address.sin_addr);
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  socklen_t size = sizeof address;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(listener, 1) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return fail_errno(errno, "cannot listen for pings");
  }
  std::thread([listener] {
    const int socket = ::accept(listener, nullptr, nullptr);
    const int one = 1;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    echo_until_closed(socket);
    ::close(socket);
    ::close(listener);
  }).detach();
  return fmt::format("{} {}", context_.node_address(), ntohs(address.sin_port));
}

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

void print_percentiles(const char* what, std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  std::printf("%-44s p50 %8.1f us   p99 %8.1f us\n", what, samples[samples.size() / 2],
              samples[samples.size() * 99 / 100]);
}

void ping(const char* what, int socket) {
  std::vector<double> samples;
  char buffer[64] = {};
  const auto begin = Clock::now();
  for (int i = 0; i < 5000; ++i) {
    const auto start = Clock::now();
    if (::write(socket, buffer, 32) != 32 || ::read(socket, buffer, sizeof buffer) != 32) break;
    samples.push_back(microseconds_since(start));
  }
  std::printf("%-44s %8.0f /s\n", what,
              static_cast<double>(samples.size()) / microseconds_since(begin) * 1e6);
  print_percentiles(what, std::move(samples));
}

/// Messages of 32 bytes, a write for each, whose echoes are read by another thread.
void stream(const char* what, int socket) {
  constexpr std::size_t count = 100000, bytes = 32;
  const auto begin = Clock::now();
  std::thread reader([socket] {
    std::vector<char> buffer(64 << 10);
    for (std::size_t got = 0; got < count * bytes;) {
      const ssize_t more = ::read(socket, buffer.data(), buffer.size());
      if (more <= 0) return;
      got += static_cast<std::size_t>(more);
    }
  });
  const char message[bytes] = {};
  for (std::size_t i = 0; i < count; ++i) {
    if (::write(socket, message, bytes) != static_cast<ssize_t>(bytes)) break;
  }
  reader.join();
  std::printf("%-44s %8.0f /s\n", what, count / microseconds_since(begin) * 1e6);
}

void bench_socketpair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return;
  std::thread echo(echo_until_closed, ends[1]);
  ping("raw socketpair ping-pong (ceiling)", ends[0]);
  ::close(ends[0]);
  echo.join();
  ::close(ends[1]);
}

int bench_tcp(const ActorHandle<Echo>& actor) {
  const auto at = actor.call<&Echo::listen_for_pings>().get(10s);
  if (!at.ok()) return std::fprintf(stderr, "%s\n", at.error().message.c_str()), 1;
  const auto space = at->find(' ');
  sockaddr_in address{.sin_family = AF_INET,
                      .sin_port = htons(static_cast<std::uint16_t>(std::stoi(at->substr(space)))),
                      .sin_addr = {},
                      .sin_zero = {}};
  ::inet_pton(AF_INET, at->substr(0, space).c_str(), &address.sin_addr);
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int one = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    ping("raw TCP ping-pong (ceiling)", socket);
    stream("raw TCP echoes without waiting (ceiling)", socket);
  }
  ::close(socket);
  return 0;
}

/// The computing time that the metrics of a call take in all, at both of its ends.
void bench_observing() {
  const auto observer = std::make_shared<CallObserver>();
  const ActorAddress address{.id = 7, .endpoint = "", .name = "echo", .type = "Echo"};
  const auto load =
      observer->add_actor(std::make_shared<const ActorAddress>(address), Echo::Methods::names);
  constexpr int calls = 5'000'000;
  const std::clock_t begin = std::clock();
  for (int i = 0; i < calls; ++i) {
    const auto call = static_cast<std::uint64_t>(i);
    observer->on_credit_taken(false);
    observer->on_call(call, address, 0);
    observer->on_call_sent(28);
    observer->on_received(28);
    const std::int64_t queued = load->on_delivered();
    load->on_ended(load->begin(0, call, queued));
    observer->on_answer_sent(28);
    observer->on_received(28);
    observer->on_credit_given();
  }
  std::printf("%-44s %8.1f ns\n", "counting a call, at both ends together",
              static_cast<double>(std::clock() - begin) * 1e9 / CLOCKS_PER_SEC / calls);
}

/// A node on `host`, over ssh.
Result<ClusterOptions> options_of(const std::string& host) {
  ClusterOptions options;
  options.nodes = {{host, 2, {}}};
  SshNodeStarter::Options ssh;
  ssh.host_of_node[host] = {host};
  options.starter = std::make_shared<SshNodeStarter>(std::move(ssh));
  TROUPE_TRY(options.address, local_address_towards(host));
  return options;
}

/// `host`: empty for this machine.
int run(const std::string& host) {
  bench_observing();
  if (host.empty()) bench_socketpair();
  auto options = host.empty() ? Result<ClusterOptions>(ClusterOptions()) : options_of(host);
  if (!options.ok()) return std::fprintf(stderr, "%s\n", options.error().message.c_str()), 1;
  auto start = Clock::now();
  auto cluster = Cluster::start(*std::move(options));
  if (!cluster.ok()) return std::fprintf(stderr, "%s\n", cluster.error().message.c_str()), 1;
  std::printf("%-44s %8.1f ms   (Ray: 2,700 ms)\n", "cluster start, one node",
              microseconds_since(start) / 1000);
  std::vector<ActorHandle<Echo>> actors;
  std::vector<double> spawns;
  for (int i = 0; i < 16; ++i) {
    start = Clock::now();
    auto actor = (*cluster)->spawn<Echo>({}).get(10s);
    if (!actor.ok()) return std::fprintf(stderr, "%s\n", actor.error().message.c_str()), 1;
    spawns.push_back(microseconds_since(start));
    actors.push_back(*actor);
  }
  std::printf("%-44s %8.1f ms   (Ray: 150 ms)\n", "first actor ready", spawns[0] / 1000);
  print_percentiles("actor start, 16 one after the other", spawns);

  if (!host.empty() && bench_tcp(actors[0]) != 0) return 1;
  std::vector<double> samples;
  start = Clock::now();
  constexpr int sync_calls = 5000;
  for (int i = 0; i < sync_calls; ++i) {
    const auto begin = Clock::now();
    if (!actors[0].call<&Echo::echo>(i).get(10s).ok()) return 1;
    samples.push_back(microseconds_since(begin));
  }
  const double sync_rate = sync_calls / microseconds_since(start) * 1e6;
  print_percentiles("call and answer", std::move(samples));
  std::printf("%-44s %8.0f /s   (Ray: 1,205/s)\n", "1:1 sync calls", sync_rate);

  constexpr int async_calls = 100000;
  start = Clock::now();
  std::vector<Future<int>> answers;
  answers.reserve(async_calls);
  for (int i = 0; i < async_calls; ++i) answers.push_back(actors[0].call<&Echo::echo>(i));
  for (auto& answer : answers) {
    if (!answer.get(10s).ok()) return 1;
  }
  std::printf("%-44s %8.0f /s   (Ray: 3,923/s)\n", "1:1 async calls",
              async_calls / microseconds_since(start) * 1e6);
  return 0;
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  troupe::ActorTypes types;
  types.add<troupe::Echo>();
  troupe::init(argc, argv, types);
  return troupe::run(argc > 1 ? argv[1] : "");
}
