#include "runtime/process/process_stack.hpp"

#include <charconv>
#include <fstream>

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "runtime/process/child_process.hpp"
#include "runtime/process/run_program.hpp"

namespace troupe {
namespace {

constexpr const char* program = "eu-stack";
constexpr std::string_view thread_mark = "TID ";
/// More frames of a thread are left out: endless recursion has millions.
constexpr int max_frames = 256;

std::string thread_name(int pid, std::string_view thread) {
  std::ifstream file(fmt::format("/proc/{}/task/{}/comm", pid, thread));
  std::string name;
  std::getline(file, name);
  return name;
}

}  // namespace

std::string readable_stack(std::string_view printed, int pid) {
  std::string text;
  while (!printed.empty()) {
    std::string_view line = printed.substr(0, printed.find('\n'));
    printed.remove_prefix(std::min(line.size() + 1, printed.size()));
    if (line.starts_with("PID ")) continue;
    if (line.starts_with(thread_mark) && line.ends_with(':')) {
      const auto thread = line.substr(thread_mark.size(), line.size() - thread_mark.size() - 1);
      text += fmt::format("thread {} ({}):\n", thread, thread_name(pid, thread));
    } else {
      text.append(line).append("\n");
    }
  }
  return text;
}

Result<std::string> process_stack(int pid, std::chrono::milliseconds timeout) {
  if (!find_program(program).ok()) {
    return fail(ErrorCode::not_found,
                "the program eu-stack is not installed there, which reads stacks: install the "
                "package elfutils on that host");
  }
  auto printed = run_program(
      {program, "-n", fmt::format("{}", max_frames), "-p", fmt::format("{}", pid)}, "", timeout);
  if (printed.ok()) return readable_stack(*printed, pid);
  const std::string& why = printed.error().message;
  // It also fails if it cannot read the end of one thread's stack.
  if (const auto threads = why.find(thread_mark); threads != why.npos) {
    return readable_stack(std::string_view(why).substr(threads), pid);
  }
  const bool is_forbidden =
      why.find("Permission denied") != why.npos || why.find("not permitted") != why.npos;
  if (is_forbidden) {
    return fail(ErrorCode::permission_denied,
                "process {} may not be traced: {} (it holds keys and is protected, or the kernel "
                "forbids it: see /proc/sys/kernel/yama/ptrace_scope)",
                pid, why);
  }
  if (why.find("No such") != why.npos) {
    return fail(ErrorCode::not_found, "process {} has ended", pid);
  }
  return printed;
}

void let_parent_trace() {
#ifdef PR_SET_PTRACER
  ::prctl(PR_SET_PTRACER, ::getppid());  // fails where there is no Yama, which forbids nothing
#endif
}

}  // namespace troupe
