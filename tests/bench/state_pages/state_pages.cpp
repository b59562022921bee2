// What `troupe actors` costs a driver with many actors, of which 1,000,000 (or the number given)
// are in its registry: how long a page of them holds the registry, and how long others wait for it
// meanwhile.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/actor/actor_registry.hpp"
#include "runtime/state/messages.hpp"
#include "tests/support/thread_cpu_time.hpp"

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void print_sorted(const char* what, std::vector<double> samples) {
  std::ranges::sort(samples);
  std::printf("%-62s median %8.4f   p99 %8.4f   most %8.4f ms\n", what, samples[samples.size() / 2],
              samples[samples.size() * 99 / 100], samples.back());
  std::fflush(stdout);
}

void admit(ActorRegistry& registry, std::uint64_t actors) {
  for (std::uint64_t i = 0; i < actors; ++i) {
    const auto admitted =
        registry.admit({.process = fmt::format("p{}", i % 64)}, "Worker", {}, [](const auto&) {});
    if (!admitted.ok()) throw std::runtime_error(admitted.error().message);
    registry.on_started({admitted->address.id, "endpoint", 7});
  }
}

/// How long other uses of the registry take until `is_over`.
std::vector<double> use(ActorRegistry& registry, const std::atomic<bool>& is_over) {
  std::vector<double> times;
  while (!is_over || times.size() < 1000) {
    const auto begin = Clock::now();
    (void)registry.has(times.size());
    times.push_back(milliseconds_since(begin));
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return times;
}

void bench(std::uint64_t actors) {
  ActorRegistry registry({{"node", 4, {}}}, PlacementStrategy::pack, {"/home/me/job/logs", false});
  const auto begin = Clock::now();
  admit(registry, actors);
  std::printf("%zu actors admitted in %.0f ms\n", static_cast<std::size_t>(actors),
              milliseconds_since(begin));
  std::atomic<bool> is_over = true;
  print_sorted("another use of the registry, alone", use(registry, is_over));
  is_over = false;
  std::vector<double> others;
  std::jthread user([&] { others = use(registry, is_over); });
  std::vector<double> pages, computed;
  std::uint64_t told = 0, bytes = 0;
  AskActors ask{.actors = max_page};
  const auto start = Clock::now();
  while (true) {
    const auto page_begin = Clock::now();
    const double computed_before = thread_cpu_s();
    const auto reply = registry.actor_states(ask);
    computed.push_back(1e3 * (thread_cpu_s() - computed_before));
    pages.push_back(milliseconds_since(page_begin));
    bytes += encode_reply(reply).size();
    told += reply.actors.size();
    if (reply.actors.size() < ask.actors) break;
    ask.after = reply.actors.back().id;
  }
  const double total = milliseconds_since(start);
  is_over = true;
  user.join();
  print_sorted("a page of 256 actors holds the registry", pages);
  print_sorted("and computes for", computed);
  print_sorted("another use of the registry meanwhile", others);
  std::printf("all %zu actors: %.0f ms, %.0f MiB\n", static_cast<std::size_t>(told), total,
              static_cast<double>(bytes) / (1 << 20));
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  troupe::bench(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1'000'000);
}
