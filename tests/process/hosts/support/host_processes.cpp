#include "tests/process/hosts/support/host_processes.hpp"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace troupe::launcher_test {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

int parent_of(int pid) {
  const std::string stat = text_of("/proc/" + std::to_string(pid) + "/stat");
  std::istringstream fields(stat.substr(stat.rfind(") ") + 4));
  int parent = 0;
  fields >> parent;
  return parent;
}

}  // namespace

int process_named(const std::string& process) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    int pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ec != std::errc()) continue;
    if (text_of(entry.path() / "cmdline").starts_with("troupe: " + process)) return pid;
  }
  return 0;
}

int agent_with(const std::string& process) {
  const int pid = process_named(process);
  return pid == 0 ? 0 : parent_of(pid);
}

}  // namespace troupe::launcher_test
