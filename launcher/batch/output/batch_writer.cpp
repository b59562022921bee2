#include "launcher/batch/output/batch_writer.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/batch/input/byte_source.hpp"
#include "runtime/base/full_disk.hpp"
#include "runtime/base/sync.hpp"

namespace troupe {
namespace {

constexpr auto sync_interval = std::chrono::seconds(1);
constexpr auto look_interval = std::chrono::milliseconds(50);
/// Approximate text in one packed member.
constexpr std::size_t member_bytes = std::size_t{4} << 20;

Error write_error(int why, const std::string& path) {
  return fail(is_full_disk(why) ? ErrorCode::resource_exhausted : ErrorCode::io,
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
  return {};
}

std::string folder_of(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

Result<void> check_folder(const std::string& path) {
  const std::string folder = folder_of(path);
  struct stat status{};
  if (::stat(folder.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) {
      return fail(ErrorCode::not_found,
                  "the folder of the output {} does not exist; make it first: mkdir -p {}", path,
                  folder);
    }
    return open_error(errno, path);
  }
  if (!S_ISDIR(status.st_mode)) {
    return fail(ErrorCode::invalid_argument, "the output {}: {} is not a folder", path, folder);
  }
  if (::access(folder.c_str(), W_OK | X_OK) != 0) return open_error(errno, path);
  return {};
}

}  // namespace

Result<void> check_output(const std::string& path, const OutputOptions& options) {
  if (path == standard_stream) return {};
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) return open_error(errno, path);
    return check_folder(path);
  }
  TROUPE_CHECK(check_existing(path, status, options));
  if (::access(path.c_str(), W_OK) != 0) return open_error(errno, path);
  return {};
}

Result<BatchWriter> BatchWriter::open(const std::string& path, OutputOptions options) {
  TROUPE_CHECK(check_output(path, options));
  constexpr int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK;
  const bool standard = path == standard_stream;
  UniqueFd fd(standard ? ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)
                       : ::open(path.c_str(), flags, 0644));
  while (!fd && errno == ENXIO) {  // a FIFO without a reader yet
    if (options.keep_waiting && !options.keep_waiting()) {
      return fail(ErrorCode::cancelled, "nobody reads the output {}", path);
    }
    std::this_thread::sleep_for(look_interval);
    fd.reset(::open(path.c_str(), flags, 0644));
  }
  if (!fd) return open_error(errno, path);
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) return open_error(errno, path);
  const bool regular = !standard && S_ISREG(status.st_mode);
  BatchWriter writer(std::move(fd), standard ? "standard output" : path, regular,
                     std::move(options));
  if (regular) TROUPE_CHECK(writer.begin_file(folder_of(path)));
  return writer;
}

Result<void> BatchWriter::begin_file(const std::string& folder) {
  if (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return fail_errno(errno, fmt::format("cannot lock {}", path_));
    return fail(ErrorCode::already_exists, "another process is writing the output {}", path_);
  }
  struct stat status{};  // under the lock
  if (::fstat(fd_.get(), &status) != 0) return open_error(errno, path_);
  has_name_ = status.st_nlink > 0;
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size != options_.size_before.value_or(size)) {
    return fail(ErrorCode::already_exists,
                "the output {} was written by others while this job began: it had {} bytes, and "
                "has {}",
                path_, *options_.size_before, size);
  }
  (void)sync_names_in(folder);  // where the file system can
  file_bytes_ = synced_bytes_ = std::min(size, options_.keep_bytes);
  if (size <= options_.keep_bytes) return {};
  // Synced before the fingerprint of a new job claims the file's content.
  if (::ftruncate(fd_.get(), static_cast<off_t>(options_.keep_bytes)) != 0 ||
      ::fsync(fd_.get()) != 0) {
    return open_error(errno, path_);
  }
  return {};
}

BatchWriter::BatchWriter(UniqueFd fd, std::string path, bool is_regular, OutputOptions options)
    : fd_(std::move(fd)),
      path_(std::move(path)),
      is_regular_(is_regular),
      options_(std::move(options)),
      compression_(compression_of_name(path_)),
      last_sync_(std::chrono::steady_clock::now()) {}

Result<void> BatchWriter::append(std::string_view line) {
  unsynced_ = true;
  const auto now = std::chrono::steady_clock::now();
  if (compression_ == Compression::none) {
    add({fmt::format("{}\n", line)});
    if (!backlog_) TROUPE_CHECK(write_blocks());
  } else {
    pending_ += line;
    pending_ += '\n';
    ++pending_lines_;
    if (pending_.size() >= member_bytes && !backlog_) {
      last_sync_ = now;
      return sync();
    }
  }
  count_backlog();
  return sync_if_due(now);
}

void BatchWriter::add(Block block) {
  unwritten_.add(block);
  blocks_.push_back(std::move(block));
}

Result<void> BatchWriter::write_blocks() {
  while (written_blocks_ < blocks_.size()) {
    const Block& block = blocks_[written_blocks_];
    if (auto written = write(block.text); !written.ok()) {
      return lose_unwritten(std::move(written).error());
    }
    if (backlog_) return {};
    unwritten_.remove(block);
    if (is_regular_) file_bytes_ += block.text.size();
    if (is_regular_ && options_.keeps_backlog) {
      ++written_blocks_;  // kept until it is synced
    } else {
      written_of_block_ = 0;
      blocks_.pop_front();
    }
  }
  return {};
}

/// Sets backlog_ and succeeds if the disk is full and keeps_backlog is set.
Result<void> BatchWriter::write(std::string_view bytes) {
  std::size_t written = written_of_block_;
  while (written < bytes.size()) {
    std::size_t count = bytes.size() - written;
    if (!is_regular_) {
      TROUPE_CHECK(wait_for_room());
      count = std::min<std::size_t>(count, PIPE_BUF);  // this much fits if anything does
    }
    const ssize_t done = ::write(fd_.get(), bytes.data() + written, count);
    if (done >= 0) {
      written += static_cast<std::size_t>(done);
      continue;
    }
    if (errno == EINTR || errno == EAGAIN) continue;
    const int why = errno;
    if (!is_regular_) {
      written_of_block_ = written;
    } else if (written > 0) {
      TROUPE_CHECK(cut_to(file_bytes_, why));
    }
    return keep_or_fail(why);
  }
  return {};
}

Result<void> BatchWriter::cut_to(std::uint64_t bytes, int why) {
  struct stat status{};
  const bool is_ours =
      ::fstat(fd_.get(), &status) == 0 && static_cast<std::uint64_t>(status.st_size) >= bytes;
  if (is_ours && ::ftruncate(fd_.get(), static_cast<off_t>(bytes)) == 0) return {};
  return fail(ErrorCode::io, "{}; its last line is torn", write_error(why, path_).message);
}

/// A write has failed: what is not written is the backlog from now on if the disk is full and there
/// may be one. Else returns the error.
Result<void> BatchWriter::keep_or_fail(int why) {
  Error error = write_error(why, path_);
  if (options_.keeps_backlog && is_full_disk(why)) {
    if (!backlog_) backlog_.emplace(OutputBacklog{.reason = error.message});
    count_backlog();
    return {};
  }
  return error;
}

/// Drops what is not written.
Error BatchWriter::lose_unwritten(Error why) {
  lost_lines_ += unwritten_.lines + pending_lines_;
  unwritten_ = {};
  blocks_.resize(written_blocks_);
  written_of_block_ = 0;
  pending_.clear();
  pending_lines_ = 0;
  backlog_.reset();
  return why;
}

void BatchWriter::count_backlog() {
  if (!backlog_) return;
  backlog_->lines = unwritten_.lines + pending_lines_;
  backlog_->bytes = unwritten_.bytes + pending_.size();
}

Result<void> BatchWriter::wait_for_room() {
  for (;;) {
    pollfd descriptor{fd_.get(), POLLOUT, 0};
    const int ready = ::poll(&descriptor, 1, static_cast<int>(look_interval.count()));
    if (ready > 0) return {};  // or broken: the write reports how
    if (ready < 0 && errno != EINTR) return write_error(errno, path_);
    if (options_.keep_waiting && !options_.keep_waiting()) {
      return fail(ErrorCode::cancelled, "nobody reads the output {}", path_);
    }
  }
}

Result<void> BatchWriter::sync_if_due(std::chrono::steady_clock::time_point now) {
  if (!unsynced_ || now - last_sync_ < sync_interval) return {};
  last_sync_ = now;
  return sync();
}

Result<void> BatchWriter::finish() {
  if (unsynced_) TROUPE_CHECK(sync());
  if (!backlog_) return {};
  return fail(ErrorCode::resource_exhausted, "{}", backlog_->reason);
}

/// Makes the lines that wait to be packed the next block.
Result<void> BatchWriter::pack() {
  if (pending_.empty()) return {};
  Block block{.text = {}, .lines = pending_lines_};
  auto packed = append_member(compression_, pending_, block.text);
  if (!packed.ok()) return lose_unwritten(std::move(packed).error());
  add(std::move(block));
  pending_.clear();
  pending_lines_ = 0;
  return {};
}

/// Writes a backlog first, and leaves one if there is no room.
Result<void> BatchWriter::sync() {
  backlog_.reset();
  if (compression_ != Compression::none) TROUPE_CHECK(pack());
  TROUPE_CHECK(write_blocks());
  if (!backlog_ && is_regular_) TROUPE_CHECK(sync_file());
  unsynced_ = backlog_.has_value();
  return {};
}

Result<void> BatchWriter::sync_file() {
  struct stat status{};
  if (::fsync(fd_.get()) != 0) {
    const int why = errno;
    if (!options_.keeps_backlog || !is_full_disk(why)) return write_error(why, path_);
    // The blocks behind synced_bytes_ may be in the file or not: they are cut off and written anew.
    TROUPE_CHECK(cut_to(synced_bytes_, why));
    file_bytes_ = synced_bytes_;
    for (std::size_t i = 0; i < written_blocks_; ++i) unwritten_.add(blocks_[i]);
    written_blocks_ = 0;
    return keep_or_fail(why);
  }
  if (::fstat(fd_.get(), &status) != 0) return write_error(errno, path_);
  if (has_name_ && status.st_nlink == 0) {
    return fail(ErrorCode::not_found, "the output {} was deleted while this job wrote it", path_);
  }
  blocks_.erase(blocks_.begin(), blocks_.begin() + static_cast<std::ptrdiff_t>(written_blocks_));
  written_blocks_ = 0;
  synced_bytes_ = file_bytes_;
  return {};
}

}  // namespace troupe
