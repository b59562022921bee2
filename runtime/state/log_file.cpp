#include "runtime/state/log_file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/process/unique_fd.hpp"

namespace troupe {

Result<LogPiece> read_log_piece(LogPiece piece, const AskLog& ask) {
  const UniqueFd file(::open(piece.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file && errno == ENOENT) return piece;
  if (!file) return fail_errno(errno, "cannot open the log " + piece.path);
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) return fail_errno(errno, "cannot look at " + piece.path);
  if (!S_ISREG(info.st_mode)) return fail(ErrorCode::io, "{} is no regular file", piece.path);
  piece.is_there = true;
  piece.inode = info.st_ino;
  piece.size = static_cast<std::uint64_t>(info.st_size);
  const std::int64_t size = info.st_size;
  const std::int64_t begin = std::clamp<std::int64_t>(
      ask.offset < 0 ? size + std::max(ask.offset, -size) : ask.offset, 0, size);
  piece.offset = static_cast<std::uint64_t>(begin);
  const auto count = std::min<std::int64_t>(std::min(ask.bytes, max_log_piece), size - begin);
  piece.bytes.resize(static_cast<std::size_t>(count));
  const ssize_t got = ::pread(file.get(), piece.bytes.data(), piece.bytes.size(), begin);
  if (got < 0) return fail_errno(errno, "cannot read the log " + piece.path);
  piece.bytes.resize(static_cast<std::size_t>(got));
  return piece;
}

std::string stderr_path() {
  struct stat info{};
  if (::fstat(STDERR_FILENO, &info) != 0 || !S_ISREG(info.st_mode)) return {};
  std::array<char, 4096> path{};
  const ssize_t count = ::readlink("/proc/self/fd/2", path.data(), path.size());
  if (count <= 0 || static_cast<std::size_t>(count) == path.size()) return {};
  std::string found(path.data(), static_cast<std::size_t>(count));
  return found.starts_with('/') && !found.ends_with(" (deleted)") ? found : "";
}

}  // namespace troupe
