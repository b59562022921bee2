#include "launcher/journal/job_lock.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace troupe {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "an unknown host";
}

/// "pid 17 on HOST", as the holder wrote it.
std::string holder(int fd) {
  std::array<char, 512> text{};
  const ssize_t count = ::pread(fd, text.data(), text.size(), 0);
  std::string_view line(text.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
  line = line.substr(0, line.find('\n'));
  return line.empty() ? "it has not said its pid yet" : std::string(line);
}

}  // namespace

Result<JobLock> JobLock::take(const std::string& path, const std::string& what) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd) return fail_errno(errno, fmt::format("cannot open {}", path));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) {
      return fail(ErrorCode::io,
                  "cannot lock {}: {}; give an --output on a file system that can lock files", path,
                  std::strerror(errno));
    }
    return fail(ErrorCode::already_exists,
                "another process is writing {} ({}); wait for its end, or give another --output",
                what, holder(fd.get()));
  }
  const std::string text = fmt::format("pid {} on {}\n", ::getpid(), host_name());
  if (::ftruncate(fd.get(), 0) != 0 ||
      ::pwrite(fd.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    return fail_errno(errno, fmt::format("cannot write {}", path));
  }
  return JobLock(std::move(fd));
}

}  // namespace troupe
