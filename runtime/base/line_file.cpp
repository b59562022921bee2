#include "runtime/base/line_file.hpp"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "runtime/base/full_disk.hpp"

namespace troupe {
namespace {

/// What the file took of `bytes`.
std::size_t write_some(int fd, std::string_view bytes) {
  std::size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t done = ::write(fd, bytes.data() + written, bytes.size() - written);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) break;
    written += static_cast<std::size_t>(done);
  }
  return written;
}

}  // namespace

Result<LineFile> LineFile::open(const std::string& path) {
  LineFile file(path);
  if (!file.open_file() && !is_full_disk(errno)) {
    return fail_errno(errno, fmt::format("cannot open the log file {}", path));
  }
  return file;
}

/// False, and errno says why.
bool LineFile::open_file() {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  return fd_ >= 0;
}

LineFile::LineFile(LineFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)), is_torn_(other.is_torn_) {}

LineFile::~LineFile() {
  if (fd_ >= 0) ::close(fd_);
}

bool LineFile::append(std::string_view lines) {
  if (fd_ < 0 && !open_file()) return false;
  std::string mended;
  if (is_torn_) {
    mended = fmt::format("\n{}", lines);
    lines = mended;
  }
  const std::size_t written = write_some(fd_, lines);
  if (written == lines.size()) {
    is_torn_ = false;
    return true;
  }
  if (written > 0) is_torn_ = lines[written - 1] != '\n';
  return false;
}

std::string dropped_lines(std::uint64_t lines) {
  return fmt::format("{} line{} of this log {} dropped, as the disk did not take {}", lines,
                     lines == 1 ? "" : "s", lines == 1 ? "was" : "were",
                     lines == 1 ? "it" : "them");
}

}  // namespace troupe
