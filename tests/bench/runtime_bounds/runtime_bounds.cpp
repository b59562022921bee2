// What an actor that does not answer costs those who call it, and what starts cost an agent.
// Floods: four threads call an actor that is busy for long, then one whose process is stopped, with
// 1 KiB and with 1 MiB, while another actor is called. Resident memory must stay flat once the
// credits (1,024 calls, 256 MiB) are used up, and all further calls fail with resource_exhausted.
// Starts: the time that the start of a process holds its thread, and, while an agent starts 64
// actors, the time until it has noticed a death and until it has answered a question of another
// actor.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <unistd.h>

#include "runtime/actor/cluster.hpp"
#include "runtime/process/child_process.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto limit = 60s;
constexpr int burst = 64;
constexpr std::string_view idle_flag = "--end-at-once";

class Target {
 public:
  int pid() { return ::getpid(); }
  int echo(int value) { return value; }
  void block_for_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }
  void take(const std::string& text) { bytes_ += text.size(); }

  static constexpr std::string_view actor_type = "Target";
  using Methods =
      troupe::Methods<&Target::pid, &Target::echo, &Target::block_for_ms, &Target::take>;

 private:
  std::size_t bytes_ = 0;
};

/// Asks its agent all the time.
class Asker {
 public:
  explicit Asker(ActorContext& context) : context_(context) {}
  /// The milliseconds that each answer took.
  std::vector<double> ask_for_ms(int ms);

  static constexpr std::string_view actor_type = "Asker";
  using Methods = troupe::Methods<&Asker::ask_for_ms>;

 private:
  ActorContext& context_;
};

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::vector<double> Asker::ask_for_ms(int ms) {
  std::vector<double> times;
  const auto until = Clock::now() + std::chrono::milliseconds(ms);
  while (Clock::now() < until) {
    const auto begin = Clock::now();
    if (!context_.channel_key({"bench", {context_.name()}}).ok()) break;
    times.push_back(milliseconds_since(begin));
  }
  return times;
}

double resident_mib(const std::string& process) {
  std::ifstream status("/proc/" + process + "/statm");
  std::uint64_t total = 0, resident = 0;
  status >> total >> resident;
  return static_cast<double>(resident) * 4096 / (1 << 20);
}

struct Outcome {
  std::atomic<int> sent = 0, exhausted = 0, died = 0, other = 0;
};

void flood(const ActorHandle<Target>& target, const std::string& text, Clock::time_point end,
           Outcome& outcome) {
  while (Clock::now() < end) {
    auto answer = target.call<&Target::take>(text);
    if (!answer.ready()) {
      ++outcome.sent;
      continue;
    }
    const auto taken = answer.get(0s);
    if (taken.ok()) {
      ++outcome.sent;
    } else if (taken.error().code == ErrorCode::resource_exhausted) {
      ++outcome.exhausted;
    } else {
      ++(taken.error().code == ErrorCode::peer_died ? outcome.died : outcome.other);
      std::this_thread::sleep_for(1ms);
    }
  }
}

/// A cluster of its own, so that memory that the allocator keeps is not that of another flood.
Result<void> bench_flood(std::size_t bytes, bool is_stopped) {
  ClusterOptions options;
  options.calls.credit_timeout = 100ms;
  TROUPE_TRY(const auto cluster, Cluster::start(std::move(options)));
  TROUPE_TRY(const auto target, cluster->spawn<Target>({}).get(limit));
  TROUPE_TRY(const auto other, cluster->spawn<Target>({}).get(limit));
  TROUPE_TRY(const int pid, target.call<&Target::pid>().get(limit));
  TROUPE_TRY(const int first, other.call<&Target::echo>(0).get(limit));
  (void)first;
  const std::string text(bytes, 'x');
  const auto length = is_stopped ? 1500ms : 4000ms;
  Future<void> blocked = target.call<&Target::block_for_ms>(5000);
  if (is_stopped) ::kill(pid, SIGSTOP);
  const auto start = Clock::now();
  Outcome outcome;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { flood(target, text, start + length, outcome); });
  }
  std::printf("calls of %zu bytes to an actor %s\n", bytes,
              is_stopped ? "whose process is stopped" : "that is busy");
  std::printf("%9s %12s %12s %10s %10s %18s\n", "time", "caller", "callee", "sent", "exhausted",
              "others' calls p50");
  for (auto next = start; next <= start + length; next += length / 8) {
    std::vector<double> times;
    while (Clock::now() < next) {
      const auto begin = Clock::now();
      TROUPE_TRY(const int answer, other.call<&Target::echo>(1).get(limit));
      (void)answer;
      times.push_back(milliseconds_since(begin));
    }
    std::ranges::sort(times);
    std::printf("%6.0f ms %8.0f MiB %8.0f MiB %10d %10d %15.3f ms\n", milliseconds_since(start),
                resident_mib("self"), resident_mib(std::to_string(pid)), outcome.sent.load(),
                outcome.exhausted.load(), times.empty() ? 0 : times[times.size() / 2]);
    std::fflush(stdout);
  }
  threads.clear();
  std::printf("failed otherwise: %d with peer_died, %d\n\n", outcome.died.load(),
              outcome.other.load());
  if (is_stopped) ::kill(pid, SIGCONT);
  return {};
}

void print_sorted(const char* what, std::vector<double> samples) {
  std::ranges::sort(samples);
  std::printf("%-62s median %7.2f   p95 %7.2f   most %7.2f ms\n", what, samples[samples.size() / 2],
              samples[samples.size() * 95 / 100], samples.back());
  std::fflush(stdout);
}

Result<void> bench_child_starts() {
  std::vector<double> single, bursts;
  for (int round = 0; round < 10; ++round) {
    std::vector<ChildProcess> children;
    const auto begin = Clock::now();
    for (int i = 0; i < burst; ++i) {
      const auto start = Clock::now();
      ChildOptions options;
      options.arguments = {"idle", std::string(idle_flag)};
      TROUPE_TRY(auto child, ChildProcess::start(options));
      children.push_back(std::move(child));
      single.push_back(milliseconds_since(start));
    }
    bursts.push_back(milliseconds_since(begin));
  }
  print_sorted("the start of a process holds its thread", single);
  print_sorted("64 starts, one after the other", bursts);
  return {};
}

Result<void> bench_deaths_beside_spawns() {
  std::vector<double> alone, beside;
  for (int round = 0; round < 10; ++round) {
    ClusterOptions options;
    options.nodes = {{"node", 2 * burst, {}}};
    TROUPE_TRY(const auto cluster, Cluster::start(std::move(options)));
    for (const bool with_spawns : {false, true}) {
      TROUPE_TRY(const auto victim, cluster->spawn<Target>({}).get(limit));
      TROUPE_TRY(const int pid, victim.call<&Target::pid>().get(limit));
      const Promise<Clock::time_point> died;
      const auto token =
          cluster->watch(victim, [died](const ActorDown&) { died.complete(Clock::now()); });
      std::vector<Future<ActorHandle<Target>>> spawning;
      for (int i = 0; with_spawns && i < burst; ++i) spawning.push_back(cluster->spawn<Target>({}));
      const auto start = Clock::now();
      ::kill(pid, SIGKILL);
      TROUPE_TRY(const auto at, died.future().get(limit));
      (with_spawns ? beside : alone)
          .push_back(std::chrono::duration<double, std::milli>(at - start).count());
      for (auto& one : spawning) {
        if (auto started = one.get(limit); !started.ok()) return started.error();
      }
    }
  }
  print_sorted("kill -9 of an actor to the callback of a watch", alone);
  print_sorted("the same while 64 actors are being started by its agent", beside);
  return {};
}

Result<void> bench_questions_beside_spawns() {
  std::vector<double> alone, beside;
  for (int round = 0; round < 10; ++round) {
    ClusterOptions options;
    options.nodes = {{"node", 2 * burst, {}}};
    TROUPE_TRY(const auto cluster, Cluster::start(std::move(options)));
    TROUPE_TRY(const auto asker, cluster->spawn<Asker>({}).get(limit));
    for (const bool with_spawns : {false, true}) {
      auto asked = asker.call<&Asker::ask_for_ms>(300);
      std::vector<Future<ActorHandle<Target>>> spawning;
      for (int i = 0; with_spawns && i < burst; ++i) spawning.push_back(cluster->spawn<Target>({}));
      TROUPE_TRY(const auto times, asked.get(limit));
      auto& all = with_spawns ? beside : alone;
      all.insert(all.end(), times.begin(), times.end());
      for (auto& one : spawning) {
        if (auto started = one.get(limit); !started.ok()) return started.error();
      }
    }
  }
  print_sorted("an actor's question to its agent", alone);
  print_sorted("the same while 64 actors are being started by its agent", beside);
  return {};
}

Result<void> bench() {
  TROUPE_CHECK(bench_child_starts());
  TROUPE_CHECK(bench_deaths_beside_spawns());
  TROUPE_CHECK(bench_questions_beside_spawns());
  for (const bool is_stopped : {false, true}) {
    for (const std::size_t bytes : {std::size_t{1} << 10, std::size_t{1} << 20}) {
      TROUPE_CHECK(bench_flood(bytes, is_stopped));
    }
  }
  return {};
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == troupe::idle_flag) return 0;
  troupe::ActorTypes types;
  types.add<troupe::Target>();
  types.add<troupe::Asker>();
  troupe::init(argc, argv, types);
  const auto done = troupe::bench();
  if (!done.ok()) std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return done.ok() ? 0 : 1;
}
