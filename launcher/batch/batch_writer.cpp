#include "launcher/batch/batch_writer.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace troupe {
namespace {

constexpr auto sync_interval = std::chrono::seconds(1);

Error write_error(int why, const std::string& path) {
  const bool full = why == ENOSPC || why == EDQUOT || why == EFBIG;
  return fail(full ? ErrorCode::resource_exhausted : ErrorCode::io,
              "cannot write the output {}: {}", path, std::strerror(why));
}

Error open_error(int why, const std::string& path) {
  const bool refused = why == EACCES || why == EPERM || why == EROFS;
  return fail(refused ? ErrorCode::permission_denied : ErrorCode::io,
              "cannot write the output {}: {}", path, std::strerror(why));
}

bool same_file(const struct stat& output, const std::string& input_path) {
  struct stat input{};
  return !input_path.empty() && ::stat(input_path.c_str(), &input) == 0 &&
         input.st_dev == output.st_dev && input.st_ino == output.st_ino;
}

Result<void> check_existing(const std::string& path, const struct stat& status,
                            const OutputOptions& options) {
  if (S_ISDIR(status.st_mode)) {
    return fail(ErrorCode::invalid_argument, "the output {} is a folder; it must be a file", path);
  }
  if (S_ISREG(status.st_mode) && same_file(status, options.input_path)) {
    return fail(ErrorCode::invalid_argument, "the output {} is the input file itself", path);
  }
  if (S_ISREG(status.st_mode) && status.st_size > 0 && !options.overwrite) {
    return fail(ErrorCode::already_exists,
                "the output {} exists and has content; give another --output, move it away, or "
                "replace it with --overwrite",
                path);
  }
  return {};
}

Result<void> check_folder(const std::string& path) {
  auto folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  struct stat status{};
  if (::stat(folder.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) {
      return fail(ErrorCode::not_found,
                  "the folder of the output {} does not exist; make it first: mkdir -p {}", path,
                  folder.string());
    }
    return open_error(errno, path);
  }
  if (!S_ISDIR(status.st_mode)) {
    return fail(ErrorCode::invalid_argument, "the output {}: {} is not a folder", path,
                folder.string());
  }
  if (::access(folder.c_str(), W_OK | X_OK) != 0) return open_error(errno, path);
  return {};
}

}  // namespace

Result<void> check_output(const std::string& path, const OutputOptions& options) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) return open_error(errno, path);
    return check_folder(path);
  }
  TROUPE_CHECK(check_existing(path, status, options));
  if (::access(path.c_str(), W_OK) != 0) return open_error(errno, path);
  return {};
}

Result<BatchWriter> BatchWriter::open(const std::string& path, const OutputOptions& options) {
  TROUPE_CHECK(check_output(path, options));
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return open_error(errno, path);
  struct stat status{};
  const bool known = ::fstat(fd, &status) == 0;
  BatchWriter writer(fd, path, known && S_ISREG(status.st_mode));
  if (!known) return open_error(errno, path);
  if (!writer.is_regular_) return writer;
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return fail(ErrorCode::already_exists, "another process is writing the output {}", path);
  }
  // Again under the lock: another job may have finished between the look and the lock.
  if (::fstat(fd, &status) != 0) return open_error(errno, path);
  TROUPE_CHECK(check_existing(path, status, options));
  if (status.st_size > 0 && ::ftruncate(fd, 0) != 0) return open_error(errno, path);
  return writer;
}

BatchWriter::BatchWriter(int fd, std::string path, bool is_regular)
    : fd_(fd),
      path_(std::move(path)),
      is_regular_(is_regular),
      last_sync_(std::chrono::steady_clock::now()) {}

BatchWriter::BatchWriter(BatchWriter&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      is_regular_(other.is_regular_),
      unsynced_(other.unsynced_),
      last_sync_(other.last_sync_),
      lines_(other.lines_),
      scratch_(std::move(other.scratch_)) {}

BatchWriter& BatchWriter::operator=(BatchWriter&& other) noexcept {
  if (this == &other) return *this;
  if (fd_ >= 0) ::close(fd_);
  fd_ = std::exchange(other.fd_, -1);
  path_ = std::move(other.path_);
  is_regular_ = other.is_regular_;
  unsynced_ = other.unsynced_;
  last_sync_ = other.last_sync_;
  lines_ = other.lines_;
  scratch_ = std::move(other.scratch_);
  return *this;
}

BatchWriter::~BatchWriter() {
  if (fd_ >= 0) ::close(fd_);
}

Result<void> BatchWriter::append(std::string_view line) {
  scratch_.assign(line);
  scratch_ += '\n';
  std::size_t written = 0;
  while (written < scratch_.size()) {
    const ssize_t count = ::write(fd_, scratch_.data() + written, scratch_.size() - written);
    if (count >= 0) {
      written += static_cast<std::size_t>(count);
      continue;
    }
    if (errno == EINTR) continue;
    const int why = errno;
    const off_t size = is_regular_ ? ::lseek(fd_, 0, SEEK_END) : -1;
    if (written > 0 && size >= static_cast<off_t>(written)) {
      if (::ftruncate(fd_, size - static_cast<off_t>(written)) != 0) {
        return fail(ErrorCode::io, "{}; its last line is torn", write_error(why, path_).message);
      }
    }
    return write_error(why, path_);
  }
  ++lines_;
  unsynced_ = true;
  return sync_if_due(std::chrono::steady_clock::now());
}

Result<void> BatchWriter::sync_if_due(std::chrono::steady_clock::time_point now) {
  if (!unsynced_ || now - last_sync_ < sync_interval) return {};
  last_sync_ = now;
  return sync();
}

Result<void> BatchWriter::finish() { return unsynced_ ? sync() : Result<void>{}; }

Result<void> BatchWriter::sync() {
  unsynced_ = false;
  if (!is_regular_) return {};
  if (::fsync(fd_) != 0) return write_error(errno, path_);
  return {};
}

}  // namespace troupe
