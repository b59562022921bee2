// What an actor that does not answer costs those who call it, and what starts cost an agent.
// Floods: four threads call an actor that is busy for long, then one whose process is stopped, with
// 1 KiB and with 1 MiB, while another actor is called. Resident memory must stay flat once the
// credits (1,024 calls, 256 MiB) are used up, or 64 MiB are queued to a process that reads nothing,
// and all further calls fail with resource_exhausted after the credits' timeout of 100 ms.
// Starts: the time that the start of a process holds its thread, and, while an agent starts 64
// actors, the time until it has noticed a death and until it has answered a question of another
// actor.
// Behind figures are their aims, and whether they are met: memory at the end at most 1.1 times that
// after an eighth of the time, a call held for at most 150 ms, a death told within 50 ms (p95).
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/actor/cluster.hpp"
#include "runtime/process/child_process.hpp"
#include "runtime/process/prompt_threads.hpp"
#include "runtime/process/temporary_folder.hpp"
#include "runtime/process/unique_fd.hpp"
#include "tests/support/aim.hpp"

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

double milliseconds_since(Clock::time_point start);

/// Asks its agent once in a millisecond.
class Asker {
 public:
  explicit Asker(ActorContext& context) : context_(context) {}
  /// The longest that an answer took in the next `ms`, in milliseconds.
  Result<double> longest_in_ms(int ms) {
    double longest = 0;
    const auto until = Clock::now() + std::chrono::milliseconds(ms);
    while (Clock::now() < until) {
      const auto begin = Clock::now();
      TROUPE_TRY(const Key key, context_.channel_key({"bench", {context_.name()}}));
      (void)key;
      longest = std::max(longest, milliseconds_since(begin));
      std::this_thread::sleep_for(1ms);
    }
    return longest;
  }

  static constexpr std::string_view actor_type = "Asker";
  using Methods = troupe::Methods<&Asker::longest_in_ms>;

 private:
  ActorContext& context_;
};

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double resident_mib(const std::string& process) {
  std::ifstream status("/proc/" + process + "/statm");
  std::uint64_t total = 0, resident = 0;
  status >> total >> resident;
  return static_cast<double>(resident) * 4096 / (1 << 20);
}

struct Outcome {
  std::atomic<int> sent = 0, exhausted = 0, died = 0, other = 0;
  std::atomic<double> longest_ms = 0;  ///< that a call held its caller

  void note_held(double ms) {
    double longest = longest_ms;
    while (ms > longest && !longest_ms.compare_exchange_weak(longest, ms)) {
    }
  }
};

void flood(const ActorHandle<Target>& target, const std::string& text, Clock::time_point end,
           Outcome& outcome) {
  while (Clock::now() < end) {
    const auto begin = Clock::now();
    auto answer = target.call<&Target::take>(text);
    outcome.note_held(milliseconds_since(begin));
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
      ++(is_actor_gone(taken.error().code) ? outcome.died : outcome.other);
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
  double first_caller = 0, first_callee = 0, caller = 0, callee = 0;
  for (auto next = start; next <= start + length; next += length / 8) {
    std::vector<double> times;
    while (Clock::now() < next) {
      const auto begin = Clock::now();
      TROUPE_TRY(const int answer, other.call<&Target::echo>(1).get(limit));
      (void)answer;
      times.push_back(milliseconds_since(begin));
    }
    std::ranges::sort(times);
    caller = resident_mib("self");
    callee = resident_mib(std::to_string(pid));
    if (next == start + length / 8) {
      first_caller = caller;
      first_callee = callee;
    }
    std::printf("%6.0f ms %8.0f MiB %8.0f MiB %10d %10d %15.3f ms\n", milliseconds_since(start),
                caller, callee, outcome.sent.load(), outcome.exhausted.load(),
                times.empty() ? 0 : times[times.size() / 2]);
    std::fflush(stdout);
  }
  threads.clear();
  std::printf("at the end %.2f of the caller's memory %s, %.2f of the callee's %s\n",
              caller / first_caller, test::at_most(caller / first_caller, 1.1, "").c_str(),
              callee / first_callee, test::at_most(callee / first_callee, 1.1, "").c_str());
  const int otherwise = outcome.died + outcome.other;
  std::printf(
      "failed otherwise: %d as the actor was gone, %d %s; a call held its caller for at most %.0f "
      "ms "
      "%s\n\n",
      outcome.died.load(), outcome.other.load(), test::at_most(otherwise, 0, "").c_str(),
      outcome.longest_ms.load(), test::at_most(outcome.longest_ms, 150, "ms").c_str());
  if (is_stopped) ::kill(pid, SIGCONT);
  return {};
}

/// With an aim for the 95th percentile, if it is not 0.
void print_sorted(const std::string& what, std::vector<double> samples, double aim_ms = 0) {
  std::ranges::sort(samples);
  const double p95 = samples[samples.size() * 95 / 100];
  std::printf("%-62s median %7.2f   p95 %7.2f %s  most %7.2f ms\n", what.c_str(),
              samples[samples.size() / 2], p95,
              aim_ms > 0 ? test::at_most(p95, aim_ms, "ms").c_str() : "", samples.back());
  std::fflush(stdout);
}

Result<void> bench_child_starts() {
  std::vector<double> single, bursts, small;
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
    for (int i = 0; i < burst; ++i) {
      const auto start = Clock::now();
      TROUPE_TRY(auto child, ChildProcess::start({.arguments = {"true"}, .program = "true"}));
      small.push_back(milliseconds_since(start));
      children.push_back(std::move(child));
    }
  }
  print_sorted("the start of a process holds its thread", single);
  print_sorted("the same of the program true", small);
  print_sorted("64 starts, one after the other", bursts);
  return {};
}

/// When a process has ended. A thread of its own looks, which runs as soon as it can.
class EndOf {
 public:
  explicit EndOf(int pid) : process_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {
    const PromptThreads prompt;
    thread_ = std::jthread([this] {
      pollfd ended{process_.get(), POLLIN, 0};
      ::poll(&ended, 1, 60'000);
      at_ = Clock::now();
    });
  }
  Clock::time_point get() {
    thread_.join();
    return at_;
  }

 private:
  UniqueFd process_;
  Clock::time_point at_;
  std::jthread thread_;
};

/// Samples of how the death of a process spreads, in milliseconds.
struct Deaths {
  std::vector<double> until_ended;  ///< from kill -9: its threads have to run to end
  std::vector<double> until_told;   ///< from then to the callback of a watch
  std::vector<double> in_all;

  void print(const std::string& when) const {
    print_sorted("kill -9 of an actor to the end of its process" + when, until_ended);
    print_sorted("from there to the callback of a watch" + when, until_told);
    print_sorted("kill -9 to the callback" + when, in_all, 50);
  }
};

Result<void> bench_deaths_beside_spawns() {
  Deaths alone, beside;
  std::vector<double> all_started;
  for (int round = 0; round < 40; ++round) {
    ClusterOptions options;
    options.nodes = {{"node", 2 * burst, {}}};
    TROUPE_TRY(const auto cluster, Cluster::start(std::move(options)));
    for (const bool with_spawns : {false, true}) {
      TROUPE_TRY(const auto victim, cluster->spawn<Target>({}).get(limit));
      TROUPE_TRY(const int pid, victim.call<&Target::pid>().get(limit));
      const Promise<Clock::time_point> died;
      const auto token =
          cluster->watch(victim, [died](const ActorDown&) { died.complete(Clock::now()); });
      EndOf end(pid);
      std::vector<Future<ActorHandle<Target>>> spawning;
      for (int i = 0; with_spawns && i < burst; ++i) spawning.push_back(cluster->spawn<Target>({}));
      const auto start = Clock::now();
      ::kill(pid, SIGKILL);
      TROUPE_TRY(const auto told, died.future().get(limit));
      const auto ended = std::min(end.get(), told);
      const auto ms = [](auto time) {
        return std::chrono::duration<double, std::milli>(time).count();
      };
      auto& deaths = with_spawns ? beside : alone;
      deaths.until_ended.push_back(ms(ended - start));
      deaths.until_told.push_back(ms(told - ended));
      deaths.in_all.push_back(ms(told - start));
      for (auto& one : spawning) {
        if (auto started = one.get(limit); !started.ok()) return started.error();
      }
      if (with_spawns) all_started.push_back(milliseconds_since(start));
    }
  }
  print_sorted("64 actors are there after", all_started);
  alone.print("");
  beside.print(" while 64 start");
  return {};
}

/// What the agent's log says at its end of its loop, in milliseconds.
struct LoopTimes {
  double longest_hold = -1, longest_work = -1;
};
LoopTimes loop_times(const std::filesystem::path& log) {
  constexpr std::string_view before = "its loop was held for ";
  LoopTimes times;
  std::ifstream file(log);
  for (std::string line; std::getline(file, line);) {
    const auto at = line.find(before);
    if (at == line.npos) continue;
    std::sscanf(line.c_str() + at + before.size(), "%lf ms, worked for %lf", &times.longest_hold,
                &times.longest_work);
  }
  return times;
}

Result<void> bench_agent_beside_spawns() {
  TROUPE_TRY(const auto folder, TemporaryFolder::create("troupe-bench"));
  std::vector<double> alone, beside, holds, works;
  for (int round = 0; round < 10; ++round) {
    ClusterOptions options;
    options.nodes = {{"node", 2 * burst, {}}};
    options.log_folder = folder.path() / std::to_string(round);
    std::filesystem::create_directory(options.log_folder);
    const auto log = std::filesystem::path(options.log_folder) / "agent-node.log";
    TROUPE_TRY(auto cluster, Cluster::start(std::move(options)));
    TROUPE_TRY(const auto asker, cluster->spawn<Asker>({}).get(limit));
    for (const bool with_spawns : {false, true}) {
      auto asked = asker.call<&Asker::longest_in_ms>(with_spawns ? 300 : 100);
      std::vector<Future<ActorHandle<Target>>> spawning;
      for (int i = 0; with_spawns && i < burst; ++i) spawning.push_back(cluster->spawn<Target>({}));
      TROUPE_TRY(const double longest, asked.get(limit));
      (with_spawns ? beside : alone).push_back(longest);
      for (auto& one : spawning) {
        if (auto started = one.get(limit); !started.ok()) return started.error();
      }
    }
    cluster.reset();
    const LoopTimes times = loop_times(log);
    holds.push_back(times.longest_hold);
    works.push_back(times.longest_work);
  }
  print_sorted("the longest of an actor's questions to its agent in 0.1 s", alone);
  print_sorted("the same in 0.3 s while 64 actors are being started by it", beside);
  print_sorted("the longest that its loop was held in such a run", holds);
  print_sorted("the longest that its loop computed in such a run", works);
  return {};
}

Result<void> bench() {
  TROUPE_CHECK(bench_child_starts());
  TROUPE_CHECK(bench_deaths_beside_spawns());
  TROUPE_CHECK(bench_agent_beside_spawns());
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
