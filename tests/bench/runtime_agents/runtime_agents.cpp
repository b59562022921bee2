// Many agents on this machine, each with actors in one shared process: how long until all are up
// and have answered, and what all of them cost while nothing happens. `runtime_agents [AGENTS]
// [ACTORS]`, 64 and 8 without them.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "runtime/actor/cluster.hpp"

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

/// Seconds of CPU that a process has used, from its scheduler's account in ns.
double cpu_of(int pid) {
  double used = 0;
  std::error_code gone;
  const auto threads = "/proc/" + std::to_string(pid) + "/task";
  for (const auto& thread : std::filesystem::directory_iterator(threads, gone)) {
    double ns = 0;
    if (std::ifstream(thread.path() / "schedstat") >> ns) used += ns / 1e9;
  }
  return used;
}

/// Proportional set size in MB.
double memory_of(int pid) {
  std::ifstream rollup("/proc/" + std::to_string(pid) + "/smaps_rollup");
  std::string word;
  while (rollup >> word) {
    double kibibytes = 0;
    if (word == "Pss:" && rollup >> kibibytes) return kibibytes * 1024 / 1e6;
  }
  return 0;
}

void print_idle(const char* what, const std::set<int>& pids) {
  constexpr auto idle = 10s;
  double cpu = 0, memory = 0;
  for (const int pid : pids) cpu -= cpu_of(pid);
  std::this_thread::sleep_for(idle);
  for (const int pid : pids) {
    cpu += cpu_of(pid);
    memory += memory_of(pid);
  }
  const auto count = static_cast<double>(pids.size());
  std::printf("%-24s %4zu idle: %6.2f %% of a CPU in all, %.3f %% each; %5.1f MB each (PSS)\n",
              what, pids.size(), cpu / 10 * 100, cpu / 10 * 100 / count, memory / count);
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
  std::printf("%d agents up after %.2f s, %d actors have answered after %.2f s (aim: 10 s)\n",
              agents, agents_up, agents * actors_each, seconds_since(begin));
  for (const auto& node : cluster->nodes()) all_agents.insert(node.agent_pid);
  std::set<int> all{::getpid()};
  all.insert(hosts.begin(), hosts.end());
  all.insert(all_agents.begin(), all_agents.end());
  std::this_thread::sleep_for(2s);
  print_idle("everything", all);
  print_idle("agents", all_agents);
  print_idle("actors' processes", hosts);
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
