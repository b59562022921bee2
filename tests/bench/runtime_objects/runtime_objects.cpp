// runtime_objects [--hosts]: what objects cost. Without --hosts: put of 64 MiB beside memcpy, and
// get in another process of the machine. With it (as `with-hosts 1 runtime_objects --hosts`): 1 GiB
// to another host, beside one stream of TCP and one of TLS.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <poll.h>
#include <sys/socket.h>

#include "runtime/actor/cluster.hpp"
#include "runtime/link/tcp_socket.hpp"
#include "runtime/link/tls_session.hpp"
#include "runtime/node/ssh_node_starter.hpp"

namespace {

using namespace troupe;
using Clock = std::chrono::steady_clock;
using Floats = std::vector<float>;
constexpr auto limit = std::chrono::seconds(120);
constexpr std::size_t mib = std::size_t{1} << 20;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

template <class T>
T must(Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    std::exit(1);
  }
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

void wait_for_socket(int socket, bool writes) {
  pollfd polled{socket, static_cast<short>(writes ? POLLOUT : POLLIN), 0};
  ::poll(&polled, 1, 10000);
}

Key stream_key() {
  Key key;
  key.fill(std::byte{7});
  return key;
}

/// Reads one stream of `bytes`, or sends it.
void run_stream(int socket, std::uint64_t bytes, bool sends, bool encrypts) {
  std::vector<std::byte> buffer(4 * mib, std::byte{1});
  std::unique_ptr<TlsContext> context;
  std::unique_ptr<TlsSession> session;
  if (encrypts) {
    context = must(TlsContext::create());
    session = sends ? must(TlsSession::connect(*context, socket, "bench/stream", stream_key()))
                    : must(TlsSession::accept(*context, socket,
                                              [](std::string_view) { return stream_key(); }));
    while (!must(session->handshake())) wait_for_socket(socket, session->wants_write());
  }
  for (std::uint64_t done = 0; done < bytes;) {
    const auto part = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), bytes - done));
    std::size_t count = 0;
    if (session) {
      count = sends ? must(session->write(part)) : must(session->read(part));
    } else {
      const auto got = sends ? ::send(socket, part.data(), part.size(), MSG_NOSIGNAL)
                             : ::recv(socket, part.data(), part.size(), 0);
      count = got > 0 ? static_cast<std::size_t>(got) : 0;
    }
    done += count;
    if (count == 0) wait_for_socket(socket, sends);
  }
}

class Reader {
 public:
  explicit Reader(ActorContext& context) : context_(context) {}

  /// Seconds for a get.
  Result<double> time_get(const ObjectRef<Floats>& ref) {
    const auto begin = Clock::now();
    TROUPE_TRY(const auto view, context_.get(ref, limit));
    const double seconds = seconds_since(begin);
    sum_ += view.get()[0];
    return seconds;
  }
  /// Seconds for many gets, one after the other.
  Result<std::vector<double>> time_gets(const std::vector<ObjectRef<Floats>>& refs) {
    std::vector<double> times;
    for (const auto& ref : refs) {
      TROUPE_TRY(const double seconds, time_get(ref));
      times.push_back(seconds);
    }
    std::ranges::sort(times);
    return times;
  }
  /// Listens; the port.
  Result<std::uint16_t> listen() {
    TROUPE_TRY(listener_, listen_in({}, "bench", context_.node_address()));
    return port_of(listener_.get());
  }
  void receive(std::uint64_t bytes, bool encrypts) {
    wait_for_socket(listener_.get(), false);
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    tune(socket.get());
    run_stream(socket.get(), bytes, false, encrypts);
  }

  static constexpr std::string_view actor_type = "Reader";
  using Methods =
      troupe::Methods<&Reader::time_get, &Reader::time_gets, &Reader::listen, &Reader::receive>;

 private:
  ActorContext& context_;
  UniqueFd listener_;
  double sum_ = 0;
};

void bench_put(Cluster& cluster) {
  const std::size_t count = 64 * mib / sizeof(float);
  const Floats value(count, 1.0F);
  Floats target(count, 2.0F);
  double best = 1e9;
  for (int i = 0; i < 10; ++i) {
    const auto begin = Clock::now();
    std::memcpy(target.data(), value.data(), 64 * mib);
    asm volatile("" : : "r"(target.data()) : "memory");
    best = std::min(best, seconds_since(begin));
  }
  std::printf("memcpy of 64 MiB           %7.2f GB/s\n", 0.0671089 / best);
  const auto begin = Clock::now();
  auto first = must(cluster.put(value));
  std::printf("put of 64 MiB, the first   %7.2f GB/s\n", 0.0671089 / seconds_since(begin));
  first = {};
  std::vector<double> times;
  for (int i = 0; i < 20; ++i) {
    const auto since = Clock::now();
    const auto ref = must(cluster.put(value));
    times.push_back(seconds_since(since));
  }
  std::ranges::sort(times);
  std::printf("put of 64 MiB, later ones  %7.2f GB/s (median), %.2f (best)\n",
              0.0671089 / times[times.size() / 2], 0.0671089 / times[0]);
  for (const std::size_t bytes : {std::size_t{1024}, std::size_t{65536}, mib}) {
    const Floats small(bytes / sizeof(float), 1.0F);
    constexpr int rounds = 2000;
    const auto since = Clock::now();
    for (int i = 0; i < rounds; ++i) (void)must(cluster.put(small));
    std::printf("put of %7zu bytes       %7.2f us\n", bytes, seconds_since(since) / rounds * 1e6);
  }
}

void bench_get(Cluster& cluster) {
  const auto reader = must(cluster.spawn<Reader>({.node = "node0"}).get(limit));
  for (const std::size_t bytes : {std::size_t{1024}, mib, 64 * mib}) {
    std::vector<ObjectRef<Floats>> refs;
    const Floats value(bytes / sizeof(float), 1.0F);
    for (int i = 0; i < (bytes > mib ? 8 : 200); ++i) refs.push_back(must(cluster.put(value)));
    const auto times = must(reader.call<&Reader::time_gets>(refs).get(limit));
    std::printf("get of %8zu bytes in another process: %.1f us (median), %.1f (best), %.1f (p99)\n",
                bytes, times[times.size() / 2] * 1e6, times[0] * 1e6,
                times[times.size() * 99 / 100] * 1e6);
  }
}

void bench_stream(const ActorHandle<Reader>& reader, const std::string& address, bool encrypts) {
  const std::uint64_t bytes = 1024 * mib;
  const auto port = must(reader.call<&Reader::listen>().get(limit));
  auto received = reader.call<&Reader::receive>(bytes, encrypts);
  auto to = must(look_up(address, port, true));
  const UniqueFd socket(::socket(to.family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(socket.get(), to.get(), to.length) != 0) std::exit(1);
  tune(socket.get());
  const auto begin = Clock::now();
  run_stream(socket.get(), bytes, true, encrypts);
  must(received.get(limit));
  std::printf("1 GiB over one stream of %s  %5.2f GB/s\n", encrypts ? "TLS" : "TCP",
              1.073741824 / seconds_since(begin));
}

int bench_hosts() {
  ClusterOptions options;
  SshNodeStarter::Options ssh;
  options.nodes.push_back({"node1", 4, {}});
  ssh.host_of_node["node1"] = {"h1"};
  options.starter = std::make_shared<SshNodeStarter>(std::move(ssh));
  options.address = "10.77.0.254";
  options.start_timeout = std::chrono::seconds(60);
  options.object_store_bytes = 6144 * mib;
  const auto cluster = must(Cluster::start(std::move(options)));
  const auto reader = must(cluster->spawn<Reader>({.node = "node1"}).get(limit));
  for (int i = 0; i < 2; ++i) {
    bench_stream(reader, "10.77.0.1", false);
    bench_stream(reader, "10.77.0.1", true);
  }
  const Floats value(1024 * mib / sizeof(float), 1.0F);
  for (int i = 0; i < 4; ++i) {
    const auto ref = must(cluster->put(value));
    const double seconds = must(reader.call<&Reader::time_get>(ref).get(limit));
    std::printf("get of 1 GiB from another host%s  %5.2f GB/s\n",
                i == 0 ? ", into fresh memory" : "                   ", 1.073741824 / seconds);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  ActorTypes types;
  types.add<Reader>();
  init(argc, argv, types);
  if (argc > 1 && std::string_view(argv[1]) == "--hosts") return bench_hosts();
  ClusterOptions options;
  options.object_store_bytes = 2048 * mib;
  const auto cluster = must(Cluster::start(std::move(options)));
  bench_put(*cluster);
  bench_get(*cluster);
  return 0;
}
