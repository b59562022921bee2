// Actor calls beside the kernel's limit (a raw socketpair ping-pong) in the same run.
// Ray's figures on a two-core machine: Ray 2.60's own `ray microbenchmark`, 1:1 actor calls sync
// 1,205/s (p50 0.81 ms, p99 4.0 ms) and async 3,923/s; first actor 0.15 s, init 2.7 s.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include "runtime/actor/cluster.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class Echo {
 public:
  int echo(int value) { return value; }
  static constexpr std::string_view actor_type = "Echo";
  using Methods = troupe::Methods<&Echo::echo>;
};

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

void print_percentiles(const char* what, std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  std::printf("%-44s p50 %8.1f us   p99 %8.1f us\n", what, samples[samples.size() / 2],
              samples[samples.size() * 99 / 100]);
}

void bench_socketpair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return;
  std::thread echo([fd = ends[1]] {
    char buffer[64];
    for (ssize_t got = 0; (got = ::read(fd, buffer, sizeof buffer)) > 0;) {
      if (::write(fd, buffer, static_cast<std::size_t>(got)) != got) return;
    }
  });
  std::vector<double> samples;
  char buffer[64] = {};
  for (int i = 0; i < 5000; ++i) {
    const auto start = Clock::now();
    if (::write(ends[0], buffer, 32) != 32 || ::read(ends[0], buffer, sizeof buffer) != 32) break;
    samples.push_back(microseconds_since(start));
  }
  ::close(ends[0]);
  echo.join();
  ::close(ends[1]);
  print_percentiles("raw socketpair ping-pong (ceiling)", std::move(samples));
}

int run() {
  bench_socketpair();
  auto start = Clock::now();
  auto cluster = Cluster::start({});
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
  return troupe::run();
}
