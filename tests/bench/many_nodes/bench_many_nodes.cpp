// Many agents that join one driver on this machine, with one actor on each node: how long until all
// are up, and what they cost the driver, idle and in steps (one call to each actor, all awaited).
// `bench_many_nodes [NODES]`, 256 without it. Agents and actors share the machine's cores, so times
// are upper bounds; the driver's CPU time and memory are its own.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <sys/resource.h>

#include "runtime/actor/cluster.hpp"
#include "runtime/node/agent.hpp"
#include "runtime/node/join_token.hpp"
#include "runtime/process/child_process.hpp"
#include "runtime/process/temporary_folder.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr const char* agent_mode = "--join";
constexpr const char* loopback = "127.0.0.1";
constexpr auto start_limit = 300s;
constexpr auto idle_time = 10s;
constexpr int steps = 50;

/// Stands for a worker with an empty model.
class Idler {
 public:
  int step(int number) { return number; }
  static constexpr std::string_view actor_type = "Idler";
  using Methods = troupe::Methods<&Idler::step>;
};

double seconds_since(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

/// The processor time of this process so far.
double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

/// A line of /proc/self/status, without its name.
std::string status(std::string_view name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) return line.substr(line.find_first_not_of(" \t", name.size() + 1));
  }
  return "?";
}

void print_self(const char* when) {
  std::printf("driver, %-28s memory %s, threads %s, cpu so far %.2f s\n", when,
              status("VmRSS").c_str(), status("Threads").c_str(), cpu_seconds());
  std::fflush(stdout);
}

Result<std::vector<ChildProcess>> start_agents(std::size_t count, std::uint16_t port,
                                               const std::string& token) {
  std::vector<ChildProcess> agents;
  for (std::size_t i = 0; i < count; ++i) {
    TROUPE_TRY(auto agent, ChildProcess::start({.arguments = {"troupe: joins", agent_mode,
                                                              std::to_string(port), token},
                                                .output_path = "/dev/null"}));
    agents.push_back(std::move(agent));
  }
  return agents;
}

Result<void> one_step(const std::vector<ActorHandle<Idler>>& idlers, int number) {
  std::vector<Future<int>> answers;
  answers.reserve(idlers.size());
  for (const auto& idler : idlers) answers.push_back(idler.call<&Idler::step>(number));
  for (auto& answer : answers) {
    TROUPE_TRY(const int same, answer.get(30s));
    if (same != number) return fail(ErrorCode::internal, "a wrong answer");
  }
  return {};
}

Result<void> measure_steps(const std::vector<ActorHandle<Idler>>& idlers) {
  TROUPE_CHECK(one_step(idlers, 0));  // connects
  std::vector<double> samples;
  const double cpu_before = cpu_seconds();
  for (int number = 1; number <= steps; ++number) {
    const auto began = Clock::now();
    TROUPE_CHECK(one_step(idlers, number));
    samples.push_back(seconds_since(began) * 1e3);
  }
  const double cpu = (cpu_seconds() - cpu_before) / steps;
  std::ranges::sort(samples);
  std::printf(
      "a step over all nodes: median %.1f ms, the slowest %.1f ms, %.1f ms of the driver's "
      "cpu (%.0f us a node)\n",
      samples[samples.size() / 2], samples.back(), cpu * 1e3,
      cpu * 1e6 / static_cast<double>(idlers.size()));
  return {};
}

Result<void> bench(std::size_t nodes) {
  TROUPE_TRY(const auto folder, TemporaryFolder::create("troupe-many-nodes"));
  const std::string token_file = (folder.path() / "token").string();
  ClusterOptions options;
  TROUPE_TRY(const SecretKey token, read_or_make_join_token(token_file));
  options.join = JoinPoint{token, 0};
  options.address = loopback;
  options.nodes.assign(nodes, NodeSpec{"node", 1, {}});
  options.start_timeout = start_limit;
  options.log_level = log::Level::warning;
  std::vector<ChildProcess> agents;
  const auto began = Clock::now();
  options.while_waiting = [&](const ClusterWait& wait) {
    if (!agents.empty()) return true;
    auto started = start_agents(nodes, wait.port, token_file);
    if (!started.ok()) return false;
    agents = *std::move(started);
    return true;
  };
  TROUPE_TRY(const auto cluster, Cluster::start(std::move(options)));
  std::printf("%zu agents have joined after %.2f s\n", nodes, seconds_since(began));
  print_self("all agents there");

  const auto spawning = Clock::now();
  std::vector<Future<ActorHandle<Idler>>> begun;
  for (const auto& node : cluster->nodes()) {
    begun.push_back(cluster->spawn<Idler>({.node = node.spec.name}));
  }
  std::vector<ActorHandle<Idler>> idlers;
  for (auto& one : begun) {
    TROUPE_TRY(auto idler, one.get(start_limit));
    idlers.push_back(std::move(idler));
  }
  std::printf("%zu actors are up after %.2f s more\n", idlers.size(), seconds_since(spawning));
  print_self("all actors there");

  const double cpu_before = cpu_seconds();
  std::this_thread::sleep_for(idle_time);  // the time over which CPU use is measured
  std::printf("idle: %.2f %% of a core\n", 100 * (cpu_seconds() - cpu_before) /
                                               std::chrono::duration<double>(idle_time).count());
  TROUPE_CHECK(measure_steps(idlers));
  print_self("after the steps");
  const auto ending = Clock::now();
  cluster->shutdown(10s);
  std::printf("all ended after %.2f s\n", seconds_since(ending));
  return {};
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  troupe::ActorTypes types;
  types.add<troupe::Idler>();
  troupe::init(argc, argv, types);
  if (argc == 4 && std::string_view(argv[1]) == troupe::agent_mode) {
    const auto port = static_cast<std::uint16_t>(std::atoi(argv[2]));
    return troupe::run_joining_agent({troupe::loopback, port, argv[3], troupe::start_limit});
  }
  const auto done = troupe::bench(argc > 1 ? static_cast<std::size_t>(std::atoi(argv[1])) : 256);
  if (done.ok()) return 0;
  std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return 1;
}
