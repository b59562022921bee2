// Many agents that join one driver on this machine, with an executor and a worker of an almost
// empty model on each node, one replica a node: how long until all are up, what they cost the
// driver, idle and stepping, and what a node's processes take. `bench_many_nodes [NODES]`, 256
// without it.
//
// Agents stand for other machines, so they leave the driver its core (nice 19); they share the two
// or so cores of this one, so times are upper bounds. The driver's CPU time and memory are its own.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <sys/resource.h>

#include "actors/engine/engine.hpp"
#include "actors/preflight/node_probe.hpp"
#include "actors/staging/checkpoint_actors.hpp"
#include "launcher/bench/throughput/bench_client.hpp"
#include "launcher/bench/throughput/workload.hpp"
#include "launcher/job/engine_session.hpp"
#include "launcher/job/job_plan.hpp"
#include "runtime/node/agent.hpp"
#include "runtime/process/child_process.hpp"
#include "runtime/process/temporary_folder.hpp"
#include "tests/support/children.hpp"
#include "tests/support/empty_model.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr const char* agent_mode = "--join";
constexpr const char* loopback = "127.0.0.1";
constexpr auto start_limit = 300s;
constexpr auto idle_time = 10s;
/// Each replica answers `requests_each` requests at once, a token a step.
constexpr std::size_t requests_each = 4;
constexpr std::int64_t warm_up_tokens = 4, measured_tokens = 200, prompt_tokens = 8;

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

/// The number behind a name in a file of /proc; 0 if the process has ended.
std::int64_t value_of(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) return std::atoll(line.c_str() + name.size());
  }
  return 0;
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

void print_driver(const char* when) {
  const std::string status = "/proc/self/status";
  std::printf("driver, %-22s memory %.1f MB, threads %ld, descriptors %zu, CPU so far %.2f s\n",
              when, static_cast<double>(value_of(status, "VmRSS:")) / 1024,
              value_of(status, "Threads:"), open_descriptors(), cpu_seconds());
  std::fflush(stdout);
}

struct Memory {
  std::size_t processes = 0;
  std::int64_t own_kb = 0;           ///< of no other process
  std::int64_t proportional_kb = 0;  ///< with its share of what several map
  std::int64_t threads = 0;

  void add(int pid) {
    const std::string folder = "/proc/" + std::to_string(pid);
    const std::string rollup = folder + "/smaps_rollup";
    ++processes;
    own_kb += value_of(rollup, "Private_Clean:") + value_of(rollup, "Private_Dirty:");
    proportional_kb += value_of(rollup, "Pss:");
    threads += value_of(folder + "/status", "Threads:");
  }
  void print(const char* what) const {
    if (processes == 0) return;
    const auto each = [this](std::int64_t sum) {
      return static_cast<double>(sum) / static_cast<double>(processes);
    };
    std::printf("%zu %s: %.1f MB each of their own (%.1f MB with shares), %.0f threads\n",
                processes, what, each(own_kb) / 1024, each(proportional_kb) / 1024, each(threads));
  }
};

void print_nodes(const std::vector<ChildProcess>& agents) {
  Memory of_agents, of_executors, of_workers;
  for (const ChildProcess& agent : agents) {
    of_agents.add(agent.pid());
    for (const int pid : test::children_of(agent.pid())) {
      std::ifstream command("/proc/" + std::to_string(pid) + "/cmdline");
      std::stringstream text;
      text << command.rdbuf();
      (text.str().find("worker") != std::string::npos ? of_workers : of_executors).add(pid);
    }
  }
  of_agents.print("agents");
  of_executors.print("executors");
  of_workers.print("workers");
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

Result<JobPlan> plan(std::size_t nodes, const std::filesystem::path& folder) {
  const auto model = folder / "model";
  std::filesystem::create_directory(model);
  std::ofstream(model / "config.json") << test::empty_model;
  const std::string text = fmt::format(
      "model: {{path: {}, load_format: dummy}}\n"
      "cluster: {{launch: join, listen: '{}:0', nodes: {}, token_file: {}, join_timeout: {}}}\n"
      "parallel: {{data_parallel_size: {}}}\n"
      "engine: {{kv_cache_blocks: 64, max_num_seqs: 16, threads_per_worker: 1}}\n",
      model.string(), loopback, nodes, (folder / "token").string(), start_limit.count(), nodes);
  TROUPE_TRY(auto config, parse_config(text, "the bench", {}, Purpose::check));
  return plan_job(std::move(config));
}

/// All replicas at once.
Result<RunResult> answer(EngineSession& session, std::size_t nodes, std::int64_t tokens,
                         StopSignals& signals) {
  std::vector<Request> requests;
  for (std::size_t i = 0; i < nodes * requests_each; ++i) {
    requests.push_back(random_request(prompt_tokens, tokens, i, 64));
  }
  const std::size_t count = requests.size();
  return run_paced(session, std::move(requests), {.at_once = count}, signals);
}

Result<void> measure_steps(EngineSession& session, std::size_t nodes, StopSignals& signals) {
  TROUPE_TRY(const RunResult warm, answer(session, nodes, warm_up_tokens, signals));
  const double cpu_before = cpu_seconds();
  TROUPE_TRY(const RunResult run, answer(session, nodes, measured_tokens, signals));
  const double cpu = cpu_seconds() - cpu_before;
  for (const Outcome& outcome : run.outcomes) {
    if (!outcome.error.empty()) return fail(ErrorCode::internal, "{}", outcome.error);
  }
  const auto steps = static_cast<double>(run.stats.steps - warm.stats.steps);
  std::printf(
      "stepping: %.0f steps of all replicas in %.2f s, %.0f a second, %.1f of each; driver %.1f %% "
      "of a core, %.1f us a step, %.0f us an answer\n",
      steps, run.seconds, steps / run.seconds, steps / run.seconds / static_cast<double>(nodes),
      100 * cpu / run.seconds, 1e6 * cpu / steps,
      1e6 * cpu / static_cast<double>(nodes * requests_each));
  return {};
}

Result<void> bench(std::size_t nodes, StopSignals& signals) {
  TROUPE_TRY(const auto folder, TemporaryFolder::create("troupe-many-nodes"));
  TROUPE_TRY(const JobPlan job, plan(nodes, folder.path()));
  std::vector<ChildProcess> agents;
  const auto began = Clock::now();
  SessionEvents events;
  events.while_waiting = [&](const ClusterWait& wait) {
    if (!agents.empty()) return signals.count() == 0;
    auto started = start_agents(nodes, wait.port, job.config.cluster.token_file);
    if (!started.ok()) return false;
    agents = *std::move(started);
    return true;
  };
  events.on_preflight = [&](const PreflightReport& report) {
    std::printf(
        "%zu nodes have joined and are looked at after %.2f s (%.2f s of it since all were "
        "there)\n",
        nodes, seconds_since(began), report.seconds);
    print_driver("all looked at");
  };
  TROUPE_TRY(const auto session,
             EngineSession::start(job, folder.path().string(), log::Level::warning, events));
  TROUPE_TRY([[maybe_unused]] const EngineInfo info,
             session->wait_until_ready([&] { return signals.count() == 0; }));
  std::printf("all %d replicas are up after %.2f s\n", job.engine.data_parallel_size,
              seconds_since(began));
  print_driver("all up");
  print_nodes(agents);

  const double cpu_before = cpu_seconds();
  std::this_thread::sleep_for(idle_time);  // the time over which CPU use is measured
  std::printf(
      "idle: driver %.2f %% of a core\n",
      100 * (cpu_seconds() - cpu_before) / std::chrono::duration<double>(idle_time).count());
  TROUPE_CHECK(measure_steps(*session, nodes, signals));
  print_driver("after the steps");
  const auto ending = Clock::now();
  session->shutdown();
  std::printf("the driver has ended all after %.2f s\n", seconds_since(ending));
  return {};
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  troupe::ActorTypes types;
  troupe::add_engine_actors(types);
  troupe::add_preflight_actors(types);
  troupe::add_staging_actors(types);
  troupe::init(argc, argv, types);
  if (argc == 4 && std::string_view(argv[1]) == troupe::agent_mode) {
    ::setpriority(PRIO_PROCESS, 0, 19);
    const auto port = static_cast<std::uint16_t>(std::atoi(argv[2]));
    return troupe::run_joining_agent({troupe::loopback, port, argv[3], troupe::start_limit});
  }
  auto signals = troupe::StopSignals::block();
  if (!signals.ok()) return 1;
  const auto done =
      troupe::bench(argc > 1 ? static_cast<std::size_t>(std::atoi(argv[1])) : 256, *signals);
  if (done.ok()) return 0;
  std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return 1;
}
