// Many agents on this machine, each with actors in one shared process: how long until all are up
// and have answered, and what all of them cost while nothing happens. `runtime_agents [AGENTS]
// [ACTORS]`, 64 and 8 without them. Aims are those of 64 agents or fewer.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "runtime/actor/cluster.hpp"
#include "tests/support/aim.hpp"
#include "tests/support/process_usage.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class Waiter {
 public:
  int process() { return ::getpid(); }

  using Methods = troupe::Methods<&Waiter::process>;
};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Processes, and what they have used.
struct Group {
  const char* name;
  std::set<int> pids;
  double cpu_seconds = 0;  ///< while nothing happens
};

/// Aims for 64 agents.
constexpr int agents_of_aims = 64;
constexpr double most_seconds = 10, most_percent = 10;

/// Watches all groups in the same ten seconds; the first one is everything.
void print_idle(std::vector<Group> groups, bool has_aim) {
  constexpr auto idle = 10s;
  for (Group& group : groups) {
    for (const int pid : group.pids) group.cpu_seconds -= test::cpu_seconds_of(pid);
  }
  std::this_thread::sleep_for(idle);
  for (Group& group : groups) {
    double memory = 0;
    for (const int pid : group.pids) {
      group.cpu_seconds += test::cpu_seconds_of(pid);
      memory += test::memory_mb_of(pid);
    }
    const auto count = static_cast<double>(group.pids.size());
    const double percent = group.cpu_seconds * 100 / std::chrono::duration<double>(idle).count();
    const bool aims = has_aim && &group == &groups.front();
    std::printf("%-24s %4zu idle: %6.2f %% of a CPU in all %s, %.3f %% each; %5.1f MB each (PSS)\n",
                group.name, group.pids.size(), percent,
                aims ? test::at_most(percent, most_percent, "%").c_str() : "", percent / count,
                memory / count);
  }
}

Result<void> run(int agents, int actors_each) {
  ClusterOptions options;
  for (int i = 0; i < agents; ++i) options.nodes.push_back({"node" + std::to_string(i), 1, {}});
  options.start_timeout = 120s;
  const auto begin = Clock::now();
  TROUPE_TRY(const auto cluster, Cluster::start(std::move(options)));
  const double agents_up = seconds_since(begin);
  std::vector<Future<ActorHandle<Waiter>>> started;
  for (int i = 0; i < agents * actors_each; ++i) {
    started.push_back(
        cluster->spawn<Waiter>({.node = "node" + std::to_string(i % agents), .process = "shared"}));
  }
  std::vector<Future<int>> answers;
  for (auto& one : started) {
    TROUPE_TRY(const auto actor, one.get(120s));
    answers.push_back(actor.call<&Waiter::process>());
  }
  std::set<int> hosts, all_agents;
  for (auto& answer : answers) {
    TROUPE_TRY(const int pid, answer.get(120s));
    hosts.insert(pid);
  }
  const double answered = seconds_since(begin);
  const bool has_aim = agents <= agents_of_aims;
  std::printf("%d agents up after %.2f s, %d actors have answered after %.2f s %s\n", agents,
              agents_up, agents * actors_each, answered,
              has_aim ? test::at_most(answered, most_seconds, "s").c_str() : "");
  for (const auto& node : cluster->nodes()) all_agents.insert(node.agent_pid);
  std::set<int> all{::getpid()};
  all.insert(hosts.begin(), hosts.end());
  all.insert(all_agents.begin(), all_agents.end());
  std::this_thread::sleep_for(2s);
  print_idle({{"everything", all}, {"agents", all_agents}, {"actors' processes", hosts}}, has_aim);
  return {};
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  const auto done =
      troupe::run(argc > 1 ? std::atoi(argv[1]) : 64, argc > 2 ? std::atoi(argv[2]) : 8);
  if (done.ok()) return 0;
  std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return 1;
}
