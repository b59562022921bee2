#include "runtime/process/stopped_thread.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <sys/ptrace.h>
#include <sys/wait.h>

namespace troupe {

Result<int> thread_named(int pid, std::string_view name) {
  std::vector<int> threads;
  std::error_code error;
  for (const auto& task :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), error)) {
    std::ifstream file(task.path() / "comm");
    std::string found;
    if (std::getline(file, found) && found == name) {
      threads.push_back(std::stoi(task.path().filename()));
    }
  }
  if (!threads.empty()) return std::ranges::min(threads);
  return fail(ErrorCode::not_found, "process {} has no thread '{}'", pid, name);
}

Result<StoppedThread> StoppedThread::stop(int thread) {
  if (::ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0) {
    const int why = errno;
    return fail(why == ESRCH ? ErrorCode::not_found : ErrorCode::permission_denied,
                "cannot trace thread {}: {}", thread, std::strerror(why));
  }
  StoppedThread stopped(thread);
  int status = 0, waited = -1;
  if (::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) == 0) {
    do {
      waited = ::waitpid(thread, &status, __WALL);
    } while (waited < 0 && errno == EINTR);
  }
  if (waited == thread && WIFSTOPPED(status)) return stopped;
  stopped.thread_ = 0;
  return fail(ErrorCode::not_found, "thread {} has ended", thread);
}

StoppedThread::~StoppedThread() {
  if (!is_gone()) (void)::ptrace(PTRACE_DETACH, thread_, nullptr, nullptr);
}

bool StoppedThread::is_gone() {
  if (thread_ == 0) return true;
  int status = 0;
  const int waited = ::waitpid(thread_, &status, __WALL | WNOHANG);
  const bool has_ended = waited == thread_ && (WIFEXITED(status) || WIFSIGNALED(status));
  if (waited < 0 || has_ended) thread_ = 0;
  return thread_ == 0;
}

}  // namespace troupe
