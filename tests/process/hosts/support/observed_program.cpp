#include "tests/process/hosts/support/observed_program.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "runtime/process/shell_word.hpp"
#include "tests/process/hosts/host_actors.hpp"
#include "tests/support/checkpoint_folder.hpp"
#include "tests/support/hosts/test_hosts.hpp"

namespace troupe::test {
namespace {

ChildProcess start_program(const std::vector<std::string>& words, const std::string& output) {
  auto process =
      ChildProcess::start({.arguments = words, .output_path = output, .program = words.front()});
  if (!process.ok()) throw std::runtime_error(process.error().message);
  return *std::move(process);
}

}  // namespace

int run_observed_program(const std::vector<std::string>& arguments) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &ends, nullptr);
  const int hosts = std::stoi(arguments.at(2));
  ClusterOptions options = hosts == 0 ? ClusterOptions{} : options_of_hosts(hosts);
  options.name = "observed";
  options.state_folder = arguments.at(0);
  options.log_folder = arguments.at(1);
  const auto cluster = start_cluster(std::move(options));
  std::vector<ActorHandle<Inhabitant>> actors;
  for (const auto& node : cluster->nodes()) {
    SpawnOptions spawn{.name = "on-" + node.spec.name, .node = node.spec.name};
    actors.push_back(must(cluster->spawn<Inhabitant>(spawn).get(limit)));
  }
  std::puts("ready");
  std::fflush(stdout);
  int signal = 0;
  ::sigwait(&ends, &signal);
  std::puts("ends in order");
  return 0;
}

ObservedProgram::ObservedProgram(std::filesystem::path folder, int hosts)
    : folder_(std::move(folder)),
      // ChildProcess ignores SIGTERM for its children; this one is a driver of its own.
      process_(start_program(
          {"env", "--default-signal=TERM", fmt::format("/proc/{}/exe", ::getpid()), "--observed",
           folder_ / "clusters", folder_ / "logs", std::to_string(hosts)},
          folder_ / "program.out")) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (output().find("ready") == std::string::npos) {
    if (process_.wait(10ms) || std::chrono::steady_clock::now() > until) {
      throw std::runtime_error("the program with a cluster is not ready: " + output());
    }
  }
}

std::string ObservedProgram::output() const { return golden::file_bytes(folder_ / "program.out"); }

Said troupe_on_host(int host, const std::filesystem::path& folder, std::vector<std::string> words,
                    std::string_view program) {
  static int runs = 0;
  const std::filesystem::path output = folder / fmt::format("said-{}", ++runs);
  words.insert(words.end(), {"--folder", (folder / "clusters").string()});
  for (std::string& word : words) word = shell_word(word);
  std::string command = fmt::format("exec unshare --pid --fork --kill-child --mount-proc {} {}",
                                    program, fmt::join(words, " "));
  if (host != 0) {
    command = fmt::format(
        "exec nsenter --mount --net --uts --target $(cat /run/ssh/sshd-h{}.pid) sh -c {}", host,
        shell_word(command));
  }
  const auto began = std::chrono::steady_clock::now();
  auto process = start_program({"sh", "-c", command}, output);
  const auto status = process.wait(limit);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  return {status && !status->signalled ? status->code : -1, golden::file_bytes(output),
          took.count()};
}

}  // namespace troupe::test
