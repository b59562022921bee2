#include "tests/fault/launcher/support/stopped_thread.hpp"

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include <fmt/format.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

namespace troupe::test {
namespace {

/// Its time in user mode, in ticks: the 14th field of its line.
std::uint64_t ticks_of(const std::filesystem::path& task) {
  std::ifstream file(task / "stat");
  std::string line;
  std::getline(file, line);
  const auto end_of_name = line.rfind(") ");
  if (end_of_name == std::string::npos) return 0;
  const char* at = line.c_str() + end_of_name + 2;
  for (int field = 3; field < 14; ++field) {
    at = std::strchr(at, ' ');
    if (at == nullptr) return 0;
    ++at;
  }
  return std::strtoull(at, nullptr, 10);
}

}  // namespace

int busiest_thread(int pid) {
  int busiest = 0;
  std::uint64_t most = 0;
  std::error_code error;
  for (const auto& task :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), error)) {
    const std::uint64_t ticks = ticks_of(task.path());
    if (ticks < most) continue;
    most = ticks;
    busiest = std::stoi(task.path().filename());
  }
  return busiest;
}

StoppedThread::StoppedThread(int thread) : thread_(thread) {
  int status = 0;
  if (::ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0 ||
      ::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) != 0 ||
      ::waitpid(thread, &status, __WALL) != thread) {
    throw std::runtime_error(
        fmt::format("cannot stop thread {}: {}", thread, std::strerror(errno)));
  }
}

StoppedThread::~StoppedThread() {
  if (!is_gone()) (void)::ptrace(PTRACE_DETACH, thread_, nullptr, nullptr);
}

bool StoppedThread::is_gone() {
  int status = 0;
  const int waited = is_gone_ ? 0 : ::waitpid(thread_, &status, __WALL | WNOHANG);
  is_gone_ |= waited < 0 || (waited == thread_ && (WIFEXITED(status) || WIFSIGNALED(status)));
  return is_gone_;
}

}  // namespace troupe::test
