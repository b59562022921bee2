#include "tests/fault/runtime/actor/victims.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <signal.h>
#include <unistd.h>

#include "tests/support/children.hpp"

namespace troupe::test {

int Sleeper::pid() { return ::getpid(); }
void Sleeper::sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }
Result<void> Sleeper::hold_memory(const std::string& name, std::uint64_t bytes) {
  TROUPE_TRY(auto fd, context_.shared_memory(name, bytes));
  held_.push_back(std::move(fd));
  return {};
}
void Sleeper::end_process(int code) { ::_exit(code); }
std::string Sleeper::outcome_of_call(const ActorHandle<Sleeper>& other) {
  const auto answer = other.call<&Sleeper::pid>().get(limit);
  return answer.ok() ? "ok" : std::string(to_string(answer.error().code));
}

int run_sub_driver(const std::string& report) {
  ClusterOptions options;
  options.nodes = {{"left", 2, {}}, {"right", 2, {}}};
  auto cluster = Cluster::start(std::move(options));
  if (!cluster.ok()) return 10;
  std::string pids;
  for (const auto& node : (*cluster)->nodes()) pids += fmt::format("{} ", node.agent_pid);
  std::string endpoint;
  for (int i = 0; i < 4; ++i) {
    auto sleeper = (*cluster)->spawn<Sleeper>({.node = i % 2 == 0 ? "left" : "right"}).get(limit);
    if (!sleeper.ok()) return 11;
    endpoint = sleeper->address().endpoint;
    if (!sleeper->call<&Sleeper::hold_memory>("ring", 1 << 20).get(limit).ok()) return 12;
    auto pid = sleeper->call<&Sleeper::pid>().get(limit);
    if (!pid.ok()) return 13;
    pids += fmt::format("{} ", *pid);
    sleeper->call<&Sleeper::sleep_ms>(60000);
  }
  std::ofstream(report + ".new") << pids << "end " << endpoint.substr(0, endpoint.rfind('-'));
  std::filesystem::rename(report + ".new", report);
  std::this_thread::sleep_for(60s);
  return 0;
}

Result<SubDriver> start_sub_driver() {
  const auto report =
      std::filesystem::temp_directory_path() / fmt::format("troupe-fault-{}", ::getpid());
  std::filesystem::remove(report);
  TROUPE_TRY(auto process,
             ChildProcess::start({{"troupe-sub-driver", "--sub-driver", report.string()}, "", -1}));
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!std::filesystem::exists(report)) {
    if (const auto status = process.wait(5ms))
      return fail(ErrorCode::internal, "the sub-driver {}", status->describe());
    if (std::chrono::steady_clock::now() > deadline)
      return fail(ErrorCode::timed_out, "the sub-driver does not start");
  }
  std::ifstream file(report);
  SubDriver driver{std::move(process), {}, ""};
  for (int pid = 0; file >> pid;) driver.pids.push_back(pid);
  file.clear();
  std::string end;
  file >> end >> driver.job_marker;
  std::filesystem::remove(report);
  return driver;
}

char process_state(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (!std::getline(file, text)) return 0;
  const auto end_of_name = text.rfind(')');
  return end_of_name == std::string::npos || end_of_name + 2 >= text.size() ? 0
                                                                            : text[end_of_name + 2];
}

bool is_alive(int pid) {
  const char state = process_state(pid);
  if (state != 'Z' && state != 'X') return state != 0;
  // The main thread is a zombie once it has ended itself; other threads may still hold sockets.
  std::error_code error;
  const std::filesystem::directory_iterator threads(fmt::format("/proc/{}/task", pid), error);
  return std::distance(begin(threads), end(threads)) > 1;
}

std::vector<int> wait_until_gone(const std::vector<int>& pids, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (true) {
    std::vector<int> alive;
    for (const int pid : pids) {
      if (is_alive(pid)) alive.push_back(pid);
    }
    if (alive.empty() || std::chrono::steady_clock::now() > deadline) return alive;
    std::this_thread::sleep_for(1ms);
  }
}

std::vector<int> children_called(const std::string& begin, int parent) {
  std::vector<int> found;
  for (const int pid : children_of(parent)) {
    std::ifstream file(fmt::format("/proc/{}/cmdline", pid));
    std::string command;
    std::getline(file, command, '\0');
    if (command.starts_with(begin)) found.push_back(pid);
  }
  return found;
}

std::vector<std::string> abstract_sockets(const std::string& job_marker) {
  std::ifstream file("/proc/net/unix");
  std::vector<std::string> found;
  for (std::string line; std::getline(file, line);) {
    if (line.find(job_marker) != std::string::npos) found.push_back(line);
  }
  return found;
}

}  // namespace troupe::test
