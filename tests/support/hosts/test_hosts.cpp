#include "tests/support/hosts/test_hosts.hpp"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

namespace troupe::test {
namespace {

constexpr const char* marker = "TROUPE_TEST_HOSTS";

bool is_a_run(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]).starts_with("--gtest_list_tests")) return false;
  }
  return true;
}

}  // namespace

std::string missing_for_hosts(std::initializer_list<const char*> programs) {
  if (::geteuid() != 0) return "hosts of their own want root (namespaces)";
  for (const char* program : programs) {
    if (::access(program, X_OK) != 0) return fmt::format("hosts of their own want {}", program);
  }
  if (std::system("unshare --net --mount --pid --fork --mount-proc true 2>/dev/null") != 0) {
    return "hosts of their own want namespaces, which this machine refuses";
  }
  return "";
}

std::string missing_slurm() {
  return missing_for_hosts(
      {"/usr/sbin/slurmctld", "/usr/sbin/slurmd", "/usr/sbin/munged", "/sbin/ip"});
}

std::string missing_hosts() {
  if (std::getenv(marker) != nullptr) return "";
  return missing_for_hosts({"/usr/sbin/sshd", "/usr/bin/ssh", "/usr/bin/unshare", "/sbin/ip"});
}

void run_with_hosts(int count, int argc, char** argv) {
  if (std::getenv(marker) != nullptr || !missing_hosts().empty() || !is_a_run(argc, argv)) return;
  const std::string script = TROUPE_SOURCE_DIR "/tests/support/hosts/with-hosts";
  const std::string hosts = std::to_string(count);
  std::vector<char*> arguments{const_cast<char*>(script.c_str()), const_cast<char*>(hosts.c_str())};
  arguments.insert(arguments.end(), argv, argv + argc + 1);
  ::execv(script.c_str(), arguments.data());
  std::perror(script.c_str());
  std::exit(1);
}

std::string host_name(int index) { return fmt::format("h{}", index); }
std::string host_address(int index) { return fmt::format("10.77.0.{}", index); }

void on_host(int index, const std::string& command) {
  const auto line =
      fmt::format("nsenter --mount --net --uts --target $(cat /run/ssh/sshd-h{}.pid) sh -c '{}'",
                  index, command);
  if (std::system(line.c_str()) != 0) throw std::runtime_error("failed: " + line);
}

void set_link(int index, bool up) {
  const auto command = fmt::format("ip link set link{} {}", index, up ? "up" : "down");
  if (std::system(command.c_str()) != 0) throw std::runtime_error("failed: " + command);
}

}  // namespace troupe::test
