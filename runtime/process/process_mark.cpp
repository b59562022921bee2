#include "runtime/process/process_mark.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <string_view>

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/host_name.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {
namespace {

/// The beginning of a small file; empty if it cannot be read.
std::string beginning_of_file(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return {};
  std::array<char, 1024> text{};
  const ssize_t count = ::read(file.get(), text.data(), text.size());
  return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0))};
}

/// "pid:[4026531836]"; empty where the kernel has no such namespaces.
std::string own_namespace(const char* kind) {
  std::array<char, 64> text{};
  const ssize_t count =
      ::readlink(fmt::format("/proc/self/ns/{}", kind).c_str(), text.data(), text.size());
  return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0))};
}

std::string first_line(const std::string& path) {
  const std::string text = beginning_of_file(path);
  return text.substr(0, text.find('\n'));
}

std::string own_machine() {
  const std::string id = first_line("/etc/machine-id");
  return id.empty() ? "" : fmt::format("{} {}", id, host_name());
}

std::string own_boot() { return first_line("/proc/sys/kernel/random/boot_id"); }

std::string own_namespaces() {
  return fmt::format("{} {}", own_namespace("pid"), own_namespace("time"));
}

struct Stat {
  char state = 0;
  std::uint64_t started = 0;
};
/// Reads /proc/PID/stat (proc(5)): fields 3 and 22. The second one is the program's name in
/// parentheses, in which any byte may be.
std::optional<Stat> stat_of(int pid) {
  const std::string text = beginning_of_file(fmt::format("/proc/{}/stat", pid));
  const auto end_of_name = text.rfind(") ");
  if (end_of_name == text.npos) return std::nullopt;
  std::string_view rest = std::string_view(text).substr(end_of_name + 2);
  if (rest.empty()) return std::nullopt;
  Stat stat{.state = rest.front()};
  for (int field = 3; field < 22; ++field) {
    const auto space = rest.find(' ');
    if (space == rest.npos) return std::nullopt;
    rest.remove_prefix(space + 1);
  }
  const auto read = std::from_chars(rest.data(), rest.data() + rest.size(), stat.started);
  if (read.ec != std::errc()) return std::nullopt;
  return stat;
}

}  // namespace

std::optional<std::uint64_t> start_of_process(int pid) {
  const auto stat = stat_of(pid);
  return stat ? std::optional(stat->started) : std::nullopt;
}

Result<ProcessMark> own_process_mark() {
  ProcessMark mark{own_machine(), own_boot(), own_namespaces(), ::getpid(), 0};
  const auto stat = stat_of(mark.pid);
  if (mark.boot.empty() || !stat) {
    return fail(ErrorCode::io,
                "/proc does not tell the boot of this machine or the start of this "
                "process");
  }
  mark.started = stat->started;
  return mark;
}

std::optional<bool> has_ended(const ProcessMark& mark) {
  const std::string boot = own_boot();
  if (mark.boot.empty() || boot.empty() || mark.pid <= 0) return std::nullopt;
  if (mark.boot != boot) {
    const bool was_here = !mark.machine.empty() && mark.machine == own_machine();
    return was_here ? std::optional(true) : std::nullopt;
  }
  if (mark.namespaces != own_namespaces()) return std::nullopt;
  const auto stat = stat_of(mark.pid);
  if (stat) return stat->started != mark.started || stat->state == 'Z' || stat->state == 'X';
  // What cannot be read may still be there (hidepid).
  if (::access(fmt::format("/proc/{}", mark.pid).c_str(), F_OK) != 0 && errno == ENOENT) {
    return true;
  }
  return std::nullopt;
}

bool wait_for_end(const ProcessMark& mark, std::chrono::milliseconds timeout) {
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, mark.pid, 0)));
  const auto ended = has_ended(mark);  // after that: the descriptor is of this process
  if (!ended || *ended || !process) return ended.value_or(false);
  const auto until = std::chrono::steady_clock::now() + timeout;
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    pollfd wait{process.get(), POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

}  // namespace troupe
