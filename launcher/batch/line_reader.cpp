#include "launcher/batch/line_reader.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace troupe {
namespace {

constexpr std::size_t chunk_bytes = 64 << 10;

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t") == line.npos; }

std::string_view without_carriage_return(std::string_view line) {
  return line.ends_with('\r') ? line.substr(0, line.size() - 1) : line;
}

}  // namespace

Result<LineReader> LineReader::open(const std::string& path, std::string_view role,
                                    std::size_t line_limit_bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    const int why = errno;
    const ErrorCode code = why == ENOENT || why == ENOTDIR ? ErrorCode::not_found
                           : why == EACCES                 ? ErrorCode::permission_denied
                                                           : ErrorCode::io;
    return fail(code, "cannot open the {} {}: {}", role, path, std::strerror(why));
  }
  LineReader reader(fd, path, line_limit_bytes);
  struct stat status{};
  if (::fstat(fd, &status) != 0) return fail_errno(errno, fmt::format("cannot read {}", path));
  if (S_ISDIR(status.st_mode)) {
    return fail(ErrorCode::invalid_argument, "the {} {} is a folder; it must be a file", role,
                path);
  }
  return reader;
}

LineReader::LineReader(int fd, std::string path, std::size_t line_limit_bytes)
    : fd_(fd), path_(std::move(path)), limit_(line_limit_bytes) {}

LineReader::LineReader(LineReader&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      limit_(other.limit_),
      buffer_(std::move(other.buffer_)),
      begin_(other.begin_),
      end_(other.end_),
      number_(other.number_),
      at_end_(other.at_end_) {}

LineReader& LineReader::operator=(LineReader&& other) noexcept {
  if (this == &other) return *this;
  if (fd_ >= 0) ::close(fd_);
  fd_ = std::exchange(other.fd_, -1);
  path_ = std::move(other.path_);
  limit_ = other.limit_;
  buffer_ = std::move(other.buffer_);
  begin_ = other.begin_;
  end_ = other.end_;
  number_ = other.number_;
  at_end_ = other.at_end_;
  return *this;
}

LineReader::~LineReader() {
  if (fd_ >= 0) ::close(fd_);
}

Result<bool> LineReader::fill() {
  if (at_end_) return false;
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() < end_ + chunk_bytes) {
    buffer_.resize(std::max(end_ + chunk_bytes, std::min(buffer_.size() * 2, limit_)));
  }
  ssize_t got = 0;
  do {
    got = ::read(fd_, buffer_.data() + end_, buffer_.size() - end_);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return fail_errno(errno, fmt::format("cannot read {}", path_));
  at_end_ = got == 0;
  end_ += static_cast<std::size_t>(got);
  return !at_end_;
}

Result<std::optional<LineReader::Line>> LineReader::take_line() {
  bool too_long = false;
  std::size_t searched = 0;
  for (;;) {
    const char* start = buffer_.data() + begin_;
    const std::size_t available = end_ - begin_;
    const void* found =
        available > searched ? std::memchr(start + searched, '\n', available - searched) : nullptr;
    if (found != nullptr || (at_end_ && (available > 0 || too_long))) {
      const std::size_t length =
          found == nullptr ? available
                           : static_cast<std::size_t>(static_cast<const char*>(found) - start);
      begin_ += length + (found == nullptr ? 0 : 1);
      const auto text = without_carriage_return({start, length});
      ++number_;
      too_long = too_long || text.size() > limit_;
      return std::optional<Line>(Line{number_, too_long ? std::string_view{} : text, too_long});
    }
    if (at_end_) return std::optional<Line>{};
    searched = available;
    if (available > limit_ + 1) {  // + 1: a carriage return is not counted
      too_long = true;
      begin_ = end_;
      searched = 0;
    }
    if (const auto filled = fill(); !filled) return filled.error();
  }
}

Result<std::optional<LineReader::Line>> LineReader::next() {
  for (;;) {
    TROUPE_TRY(std::optional<Line> line, take_line());
    if (!line) return line;
    constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
    if (line->number == 1 && line->text.starts_with(byte_order_mark)) {
      line->text.remove_prefix(byte_order_mark.size());
    }
    if (line->too_long || !is_blank(line->text)) return line;
  }
}

Result<std::uint64_t> count_lines(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) return std::uint64_t{0};
  TROUPE_TRY(LineReader reader, LineReader::open(path, "input", chunk_bytes));
  std::uint64_t count = 0;
  for (;;) {
    TROUPE_TRY(const std::optional<LineReader::Line> line, reader.next());
    if (!line) return count;
    ++count;
  }
}

}  // namespace troupe
