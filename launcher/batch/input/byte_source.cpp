#include "launcher/batch/input/byte_source.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace troupe {
namespace {

constexpr std::size_t chunk_bytes = 64 << 10;

Error open_error(int why, std::string_view role, const std::string& path) {
  const ErrorCode code = why == ENOENT || why == ENOTDIR ? ErrorCode::not_found
                         : why == EACCES                 ? ErrorCode::permission_denied
                                                         : ErrorCode::io;
  return fail(code, "cannot open the {} {}: {}", role, path, std::strerror(why));
}

}  // namespace

Result<ByteSource> ByteSource::open(const std::string& path, std::string_view role,
                                    std::uint64_t max_bytes) {
  const bool standard = path == standard_stream;
  // Opening a FIFO without a writer returns at once only if non-blocking; reads are polled anyway.
  UniqueFd fd(standard ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                       : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const std::string name = standard ? "standard input" : path;
  if (!fd) return open_error(errno, role, name);
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0)
    return fail_errno(errno, fmt::format("cannot read {}", name));
  if (S_ISDIR(status.st_mode)) {
    return fail(ErrorCode::invalid_argument, "the {} {} is a folder; it must be a file", role,
                name);
  }
  return ByteSource(std::move(fd), name, S_ISREG(status.st_mode), max_bytes);
}

ByteSource::ByteSource(UniqueFd fd, std::string path, bool is_regular, std::uint64_t max_bytes)
    : fd_(std::move(fd)),
      path_(std::move(path)),
      is_regular_(is_regular),
      bytes_left_(max_bytes),
      buffer_(chunk_bytes) {}

Result<ByteSource::Filled> ByteSource::fill(std::chrono::milliseconds timeout) {
  if (at_end_) return Filled::end;
  if (!is_regular_) {
    pollfd descriptor{fd_.get(), POLLIN, 0};
    const int ready = ::poll(&descriptor, 1, static_cast<int>(timeout.count()));
    if (ready == 0 || (ready < 0 && errno == EINTR)) return Filled::not_yet;
    if (ready < 0) return fail_errno(errno, fmt::format("cannot read {}", path_));
  }
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= std::exchange(begin_, 0);
  const std::size_t room = std::min<std::uint64_t>(buffer_.size() - end_, bytes_left_);
  ssize_t got = 0;
  do {
    got = room == 0 ? 0 : ::read(fd_.get(), buffer_.data() + end_, room);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && errno == EAGAIN) return Filled::not_yet;
  if (got < 0) return fail_errno(errno, fmt::format("cannot read {}", path_));
  at_end_ = got == 0;
  end_ += static_cast<std::size_t>(got);
  bytes_left_ -= static_cast<std::uint64_t>(got);
  return at_end_ ? Filled::end : Filled::some;
}

Result<void> ByteSource::decide_packing() {
  decided_ = true;
  const Compression found = compression_of_content({buffer_.data() + begin_, end_ - begin_});
  if (found == Compression::none) return {};
  TROUPE_TRY(unpacker_, Decompressor::make(found));
  return {};
}

Result<std::optional<std::size_t>> ByteSource::read(std::span<char> out,
                                                    std::chrono::milliseconds timeout) {
  using Count = std::optional<std::size_t>;
  while (!decided_) {
    TROUPE_TRY(const Filled filled, fill(timeout));
    if (filled == Filled::not_yet) return Count{};
    if (filled == Filled::end || end_ - begin_ >= compression_magic_bytes) {
      TROUPE_CHECK(decide_packing());
    }
  }
  for (;;) {
    const std::span<const char> rest(buffer_.data() + begin_, end_ - begin_);
    if (unpacker_) {
      auto piece = unpacker_->unpack(rest, out);
      if (!piece.ok()) {
        return fail(ErrorCode::corrupt_data, "cannot read {}: {}", path_, piece.error().message);
      }
      begin_ += piece->consumed;
      if (piece->consumed + piece->produced > 0) between_members_ = piece->member_ended;
      if (piece->produced > 0) return Count{piece->produced};
      if (piece->consumed > 0) continue;
    } else if (!rest.empty()) {
      const std::size_t count = std::min(rest.size(), out.size());
      std::memcpy(out.data(), rest.data(), count);
      begin_ += count;
      return Count{count};
    }
    TROUPE_TRY(const Filled filled, fill(timeout));
    if (filled == Filled::not_yet) return Count{};
    if (filled == Filled::some) continue;
    if (between_members_) return Count{0};
    return fail(ErrorCode::corrupt_data, "{} ends in the middle of packed data", path_);
  }
}

bool is_rereadable(const std::string& path) {
  if (path == standard_stream) return false;
  struct stat status{};
  return ::stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode);
}

}  // namespace troupe
