// Troupe's side of compare_ray: prints `ROW VALUE` for each row named, or for all. The other
// process of each row is on --host=HOST, if given, over ssh; all connections are authenticated, and
// those between hosts are TLS.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "runtime/actor/cluster.hpp"
#include "runtime/link/local_address.hpp"
#include "runtime/node/ssh_node_starter.hpp"
#include "tests/bench/compare_ray/in_process_rows.hpp"
#include "tests/bench/compare_ray/remote_shell.hpp"
#include "tests/support/process_usage.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

int identity(int value) { return value; }

using Blob = std::vector<std::uint8_t>;

class Echo {
 public:
  explicit Echo(ActorContext& context) : context_(context) {}

  int echo(int value) { return value; }
  int pid() { return ::getpid(); }
  void stay() { std::this_thread::sleep_for(120s); }
  Result<void> call_others(std::vector<ActorHandle<Echo>> others, int count) {
    std::vector<Future<int>> answers;
    for (int i = 0; i < count; ++i) {
      answers.push_back(others[static_cast<std::size_t>(i) % others.size()].call<&Echo::echo>(i));
    }
    for (auto& answer : answers) {
      TROUPE_TRY([[maybe_unused]] const int value, answer.get(60s));
    }
    return {};
  }
  /// Gets the object; returns how long that took, in seconds.
  Result<double> read(const ObjectRef<Blob>& ref) {
    const auto begin = Clock::now();
    TROUPE_TRY([[maybe_unused]] const auto view, context_.get(ref, 60s));
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  using Methods =
      troupe::Methods<&Echo::echo, &Echo::pid, &Echo::stay, &Echo::call_others, &Echo::read>;

 private:
  ActorContext& context_;
};
using Actor = ActorHandle<Echo>;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double quantile(std::vector<double> samples, double share) {
  std::sort(samples.begin(), samples.end());
  return samples[static_cast<std::size_t>(static_cast<double>(samples.size()) * share)];
}
double median(std::vector<double> samples) { return quantile(std::move(samples), 0.5); }

/// The rows, on one cluster.
class Rows {
 public:
  Rows(Cluster& cluster, std::string host) : cluster_(cluster), host_(std::move(host)) {}

  Result<double> calls_sync() {
    TROUPE_TRY(const auto actors, spawn(1));
    constexpr int count = 20000;
    const auto begin = Clock::now();
    for (int i = 0; i < count; ++i) {
      TROUPE_TRY([[maybe_unused]] const int value, actors[0].call<&Echo::echo>(i).get(10s));
    }
    return count / seconds_since(begin);
  }

  Result<double> calls_async() {
    TROUPE_TRY(const auto actors, spawn(1));
    constexpr int count = 200000;
    std::vector<Future<int>> answers;
    answers.reserve(count);
    const auto begin = Clock::now();
    for (int i = 0; i < count; ++i) answers.push_back(actors[0].call<&Echo::echo>(i));
    for (auto& answer : answers) {
      TROUPE_TRY([[maybe_unused]] const int value, answer.get(60s));
    }
    return count / seconds_since(begin);
  }

  Result<double> calls_n_to_n() {
    TROUPE_TRY(const auto servers, spawn(2));
    TROUPE_TRY(const auto clients, spawn(2));
    constexpr int count = 100000;
    const auto begin = Clock::now();
    std::vector<Future<void>> done;
    for (const auto& client : clients) {
      done.push_back(client.call<&Echo::call_others>(servers, count));
    }
    for (auto& one : done) TROUPE_CHECK(one.get(60s));
    return 2 * count / seconds_since(begin);
  }

  Result<double> spawn_16() {
    const auto begin = Clock::now();
    TROUPE_TRY([[maybe_unused]] const auto actors, spawn(16));
    return seconds_since(begin);
  }

  Result<double> tasks_sync() {
    TROUPE_CHECK(warm_tasks());
    constexpr int count = 5000;
    const auto begin = Clock::now();
    for (int i = 0; i < count; ++i) {
      TROUPE_TRY([[maybe_unused]] const int value, submit(i).get(60s));
    }
    return count / seconds_since(begin);
  }

  Result<double> tasks_async() {
    TROUPE_CHECK(warm_tasks());
    constexpr int count = 100000;
    std::vector<Future<int>> answers;
    answers.reserve(count);
    const auto begin = Clock::now();
    for (int i = 0; i < count; ++i) answers.push_back(submit(i));
    for (auto& answer : answers) {
      TROUPE_TRY([[maybe_unused]] const int value, answer.get(60s));
    }
    return count / seconds_since(begin);
  }

  Result<double> put_64_mib() {
    const Blob value(64 << 20, 1);
    std::vector<double> rates;
    for (int i = 0; i < 11;
         ++i) {  // each is freed before the next, so that its segment is used again
      const auto begin = Clock::now();
      TROUPE_TRY([[maybe_unused]] const auto ref, cluster_.put(value));
      if (i > 0) rates.push_back(static_cast<double>(value.size()) / seconds_since(begin) / 1e9);
    }
    return median(std::move(rates));
  }

  Result<double> get_64_mib() {
    TROUPE_TRY(const auto ref, cluster_.put(Blob(64 << 20, 1)));
    TROUPE_TRY(const auto actors, spawn(1));
    std::vector<double> took;
    for (int i = 0; i < 50; ++i) {
      TROUPE_TRY(const double seconds, actors[0].call<&Echo::read>(ref).get(60s));
      took.push_back(seconds * 1e6);
    }
    return median(std::move(took));
  }

  Result<double> get_1_gib() {
    TROUPE_TRY(const auto actors, spawn(1));
    std::vector<double> rates;
    for (int i = 0; i < 3; ++i) {
      TROUPE_TRY(const auto ref, cluster_.put(Blob(std::size_t{1} << 30, 1)));
      TROUPE_TRY(const double seconds, actors[0].call<&Echo::read>(ref).get(120s));
      rates.push_back(1073741824.0 / seconds / 1e9);
    }
    return median(std::move(rates));
  }

  Result<double> death_seen() { return end_seen("KILL", 40); }
  Result<double> stopped_seen() { return end_seen("STOP", 5); }

  Result<double> restarted() {
    TROUPE_TRY(auto shell, bench::RemoteShell::start(host_));
    std::vector<double> took;
    for (int i = 0; i < 5; ++i) {
      TROUPE_TRY(const auto actors, spawn(1, {.max_restarts = -1}));
      TROUPE_TRY(const int killed, actors[0].call<&Echo::pid>().get(10s));
      const auto begin = Clock::now();
      TROUPE_CHECK(shell.send(fmt::format("kill -KILL {}", killed)));
      for (;;) {
        const auto pid = actors[0].call<&Echo::pid>().get(60s);
        if (pid.ok() && *pid != killed) break;
      }
      took.push_back(seconds_since(begin) * 1e3);
    }
    return median(std::move(took));
  }

  /// Of the median of eight processes that do nothing: Pss, and the share of a CPU.
  Result<std::pair<double, double>> idle() {
    TROUPE_TRY(const auto actors, spawn(8));
    std::vector<int> pids;
    for (const auto& actor : actors) {
      TROUPE_TRY(pids.emplace_back(), actor.call<&Echo::pid>().get(10s));
    }
    std::this_thread::sleep_for(2s);
    std::vector<double> memory, used;
    for (const int pid : pids) used.push_back(-test::cpu_seconds_of(pid));
    std::this_thread::sleep_for(10s);
    for (std::size_t i = 0; i < pids.size(); ++i) {
      used[i] += test::cpu_seconds_of(pids[i]);
      memory.push_back(test::memory_mb_of(pids[i]));
    }
    return std::pair(median(std::move(memory)), median(std::move(used)) / 10 * 100);
  }

 private:
  Future<int> submit(int value) { return cluster_.submit<&identity>(TaskOptions{}, value); }
  Result<void> warm_tasks() {
    std::vector<Future<int>> answers;
    for (int i = 0; i < 100; ++i) answers.push_back(submit(i));
    for (auto& answer : answers) {
      TROUPE_TRY([[maybe_unused]] const int value, answer.get(60s));
    }
    return {};
  }

  /// Starts actors at once, each in a process of its own, and waits until all have answered.
  Result<std::vector<Actor>> spawn(int count, const SpawnOptions& options = {}) {
    std::vector<Future<Actor>> started;
    for (int i = 0; i < count; ++i) started.push_back(cluster_.spawn<Echo>(options));
    std::vector<Actor> actors;
    for (auto& one : started) {
      TROUPE_TRY(actors.emplace_back(), one.get(60s));
    }
    std::vector<Future<int>> answers;
    for (const auto& actor : actors) answers.push_back(actor.call<&Echo::echo>(0));
    for (auto& answer : answers) {
      TROUPE_TRY([[maybe_unused]] const int value, answer.get(60s));
    }
    return actors;
  }

  /// From the sending of a signal to the error of a call that the actor has begun before: the 95th
  /// percentile of so many ends, in milliseconds. The way to the process's host and the end of the
  /// process are in it.
  Result<double> end_seen(const std::string& signal_name, int ends) {
    TROUPE_TRY(auto shell, bench::RemoteShell::start(host_));
    std::vector<double> took;
    for (int i = 0; i < ends; ++i) {
      TROUPE_TRY(const auto actors, spawn(1));
      TROUPE_TRY(const int pid, actors[0].call<&Echo::pid>().get(10s));
      auto call = actors[0].call<&Echo::stay>();
      const auto begin = Clock::now();
      TROUPE_CHECK(shell.send(fmt::format("kill -{} {}", signal_name, pid)));
      const auto answer = call.get(60s);
      took.push_back(seconds_since(begin) * 1e3);
      if (answer.ok() || !is_actor_gone(answer.error().code)) {
        return fail(ErrorCode::internal, "after SIG{} a call returned {}", signal_name,
                    answer.ok() ? "an answer" : answer.error().message);
      }
    }
    return quantile(std::move(took), 0.95);
  }

  Cluster& cluster_;
  const std::string host_;
};

Result<ClusterOptions> options_of(const std::string& host) {
  ClusterOptions options;
  if (host.empty()) return options;
  options.nodes = {{host, 2, {}}};
  SshNodeStarter::Options ssh;
  ssh.host_of_node[host] = {host};
  options.starter = std::make_shared<SshNodeStarter>(std::move(ssh));
  TROUPE_TRY(options.address, local_address_towards(host));
  return options;
}

using Print = std::function<void(const char* row, double value)>;

/// The rows that this machine alone is for.
Result<void> print_rows_of_one_machine(Cluster& cluster, Rows& rows,
                                       const std::function<bool(std::string_view)>& is_asked,
                                       const Print& print) {
  bench::InProcessRows in_process(cluster);
  if (is_asked("spawn_in_process")) {
    TROUPE_TRY(const double rate, in_process.spawned_per_second());
    print("spawn_in_process", rate);
  }
  if (is_asked("calls_in_process")) {
    TROUPE_TRY(const double rate, in_process.calls_per_second());
    print("calls_in_process", rate);
  }
  if (is_asked("memory_in_process") || is_asked("memory_called")) {
    TROUPE_TRY(const auto bytes, in_process.bytes_per_actor());
    print("memory_in_process", bytes.waiting);
    print("memory_called", bytes.waiting_again);
  }
  if (is_asked("idle_memory") || is_asked("idle_cpu")) {
    TROUPE_TRY(const auto idle, rows.idle());
    print("idle_memory", idle.first);
    print("idle_cpu", idle.second);
  }
  return {};
}

Result<void> run(const std::string& host, const std::vector<std::string>& asked) {
  const auto is_asked = [&](std::string_view row) {
    return asked.empty() || std::find(asked.begin(), asked.end(), row) != asked.end();
  };
  const auto print = [](const char* row, double value) {
    std::printf("%s %.6g\n", row, value);
    std::fflush(stdout);
  };
  const auto begin = Clock::now();
  TROUPE_TRY(auto options, options_of(host));
  TROUPE_TRY(const auto cluster, Cluster::start(std::move(options)));
  if (is_asked("start")) print("start", seconds_since(begin));
  Rows rows(*cluster, host);
  constexpr std::pair<const char*, Result<double> (Rows::*)()> all[] = {
      {"calls_sync", &Rows::calls_sync},     {"calls_async", &Rows::calls_async},
      {"calls_n_to_n", &Rows::calls_n_to_n}, {"spawn_16", &Rows::spawn_16},
      {"tasks_sync", &Rows::tasks_sync},     {"tasks_async", &Rows::tasks_async},
      {"put_64_mib", &Rows::put_64_mib},     {"get_64_mib", &Rows::get_64_mib},
      {"get_1_gib", &Rows::get_1_gib},       {"death_seen", &Rows::death_seen},
      {"restarted", &Rows::restarted},       {"stopped_seen", &Rows::stopped_seen},
  };
  for (const auto& [name, row] : all) {
    if (!is_asked(name) || (host.empty() && name == std::string_view("get_1_gib"))) continue;
    TROUPE_TRY(const double value, (rows.*row)());
    print(name, value);
  }
  if (!host.empty()) return {};
  return print_rows_of_one_machine(*cluster, rows, is_asked, print);
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  std::string host;
  std::vector<std::string> asked;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    constexpr std::string_view option = "--host=";
    if (word.starts_with(option)) {
      host = word.substr(option.size());
    } else {
      asked.push_back(word);
    }
  }
  const auto done = troupe::run(host, asked);
  if (done.ok()) return 0;
  std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return 1;
}
