// Tasks on a warm pool of 1 and 2 worker processes, and what 16 actor processes cost.
// Ray's figures on a two-core machine are those of runtime_calls (Ray 2.60, `ray microbenchmark`);
// tasks without waiting about 5,000/s.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "runtime/actor/cluster.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

int add(int a, int b) { return a + b; }

class Idle {
 public:
  int pid() { return 0; }
  static constexpr std::string_view actor_type = "Idle";
  using Methods = troupe::Methods<&Idle::pid>;
};

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

int complain(const Error& error) { return std::fprintf(stderr, "%s\n", error.message.c_str()), 1; }

int bench_tasks(int workers) {
  ClusterOptions options;
  options.nodes = {{"node0", workers, {}}};
  options.is_observable = false;
  auto cluster = Cluster::start(std::move(options));
  if (!cluster.ok()) return complain(cluster.error());
  auto begin = Clock::now();
  auto first = (*cluster)->submit<&add>({}, 1, 2).get(10s);
  if (!first.ok()) return complain(first.error());
  std::printf("%d worker%s: first task (starts a process)   %8.1f ms\n", workers,
              workers == 1 ? " " : "s", microseconds_since(begin) / 1000);

  constexpr int sync_tasks = 5000;
  std::vector<double> samples;
  begin = Clock::now();
  for (int i = 0; i < sync_tasks; ++i) {
    const auto start = Clock::now();
    if (auto sum = (*cluster)->submit<&add>({}, i, 1).get(10s); !sum.ok()) {
      return complain(sum.error());
    }
    samples.push_back(microseconds_since(start));
  }
  const double rate = sync_tasks / microseconds_since(begin) * 1e6;
  std::sort(samples.begin(), samples.end());
  std::printf("  submit and answer       p50 %8.1f us   p99 %8.1f us\n",
              samples[samples.size() / 2], samples[samples.size() * 99 / 100]);
  std::printf("  one after the other         %8.0f /s\n", rate);

  for (int round = 0; round < 3; ++round) {
    constexpr int async_tasks = 200000;
    std::vector<Future<int>> sums;
    sums.reserve(async_tasks);
    begin = Clock::now();
    for (int i = 0; i < async_tasks; ++i) sums.push_back((*cluster)->submit<&add>({}, i, 1));
    const double submitted = microseconds_since(begin);
    for (int i = 0; i < async_tasks; ++i) {
      const auto sum = sums[static_cast<std::size_t>(i)].get(10s);
      if (!sum.ok()) return complain(sum.error());
      if (*sum != i + 1) return std::fprintf(stderr, "wrong sum\n"), 1;
    }
    std::printf(
        "  without waiting             %8.0f /s   (submit alone %8.0f /s)   (Ray: 5,000/s)\n",
        async_tasks / microseconds_since(begin) * 1e6, async_tasks / submitted * 1e6);
  }
  return 0;
}

int bench_spawns() {
  ClusterOptions options;
  options.is_observable = false;
  auto cluster = Cluster::start(std::move(options));
  if (!cluster.ok()) return complain(cluster.error());
  constexpr int actors = 16;
  for (int round = 0; round < 3; ++round) {
    std::vector<Future<ActorHandle<Idle>>> spawns;
    std::vector<ActorHandle<Idle>> handles;
    const auto begin = Clock::now();
    for (int i = 0; i < actors; ++i) spawns.push_back((*cluster)->spawn<Idle>({}));
    for (auto& spawn : spawns) {
      auto handle = spawn.get(10s);
      if (!handle.ok()) return complain(handle.error());
      handles.push_back(*handle);
    }
    const double all = microseconds_since(begin);
    std::vector<Future<int>> answers;
    for (const auto& handle : handles) answers.push_back(handle.call<&Idle::pid>());
    for (auto& answer : answers) {
      if (auto pid = answer.get(10s); !pid.ok()) return complain(pid.error());
    }
    std::printf("16 actor processes at once %8.1f ms (%.2f ms each), all called after %8.1f ms\n",
                all / 1000, all / 1000 / actors, microseconds_since(begin) / 1000);
    for (const auto& handle : handles) {
      if (auto stopped = (*cluster)->stop(handle); !stopped.ok()) return complain(stopped.error());
    }
  }
  return 0;
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  troupe::ActorTypes types;
  types.add<troupe::Idle>();
  troupe::init(argc, argv, types);
  return troupe::bench_tasks(1) + troupe::bench_tasks(2) + troupe::bench_spawns();
}
