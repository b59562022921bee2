#include "runtime/base/line_file.hpp"

#include <algorithm>
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

std::string dropped_lines(std::uint64_t lines) {
  return fmt::format("{} line{} of this log {} dropped, as the disk did not take {}", lines,
                     lines == 1 ? "" : "s", lines == 1 ? "was" : "were",
                     lines == 1 ? "it" : "them");
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
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      is_torn_(other.is_torn_),
      dropped_(other.dropped_) {}

LineFile::~LineFile() {
  if (fd_ >= 0) ::close(fd_);
}

std::string LineFile::of_troupe(const std::string& text) {
  return fmt::format("troupe: {}\n", text);
}

bool LineFile::append(std::string_view lines, const MakeLine& make_line) {
  if (dropped_ > 0 && write(make_line(dropped_lines(dropped_)))) dropped_ = 0;
  if (dropped_ == 0 && write(lines)) return true;
  dropped_ += static_cast<std::uint64_t>(std::ranges::count(lines, '\n'));
  return false;
}

bool LineFile::write(std::string_view lines) {
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

}  // namespace troupe
