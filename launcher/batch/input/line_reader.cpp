#include "launcher/batch/input/line_reader.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace troupe {
namespace {

constexpr std::size_t chunk_bytes = 64 << 10;
constexpr auto long_wait = std::chrono::hours(1);

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t") == line.npos; }

std::string_view without_carriage_return(std::string_view line) {
  return line.ends_with('\r') ? line.substr(0, line.size() - 1) : line;
}

}  // namespace

Result<LineReader> LineReader::open(const std::string& path, std::string_view role,
                                    std::size_t line_limit_bytes, std::uint64_t max_bytes) {
  TROUPE_TRY(ByteSource source, ByteSource::open(path, role, max_bytes));
  return LineReader(std::move(source), line_limit_bytes);
}

LineReader::LineReader(ByteSource source, std::size_t line_limit_bytes)
    : source_(std::move(source)), limit_(line_limit_bytes) {}

Result<LineReader::State> LineReader::fill(std::chrono::milliseconds timeout) {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() < end_ + chunk_bytes) {
    buffer_.resize(std::max(end_ + chunk_bytes, std::min(buffer_.size() * 2, limit_)));
  }
  TROUPE_TRY(const auto got, source_.read({buffer_.data() + end_, buffer_.size() - end_}, timeout));
  if (!got) return State::not_yet;
  at_end_ = *got == 0;
  end_ += *got;
  return at_end_ ? State::end : State::line;
}

Result<LineReader::Taken> LineReader::take_line(std::chrono::milliseconds timeout) {
  for (;;) {
    const char* start = buffer_.data() + begin_;
    const std::size_t available = end_ - begin_;
    const void* found = available > searched_
                            ? std::memchr(start + searched_, '\n', available - searched_)
                            : nullptr;
    if (found != nullptr || (at_end_ && (available > 0 || too_long_))) {
      const std::size_t length =
          found == nullptr ? available
                           : static_cast<std::size_t>(static_cast<const char*>(found) - start);
      const std::size_t taken = length + (found == nullptr ? 0 : 1);
      begin_ += taken;
      consumed_ += taken;
      searched_ = 0;
      const auto text = without_carriage_return({start, length});
      const bool too_long = std::exchange(too_long_, false) || text.size() > limit_;
      return Taken{State::line,
                   {.number = ++number_,
                    .text = too_long ? std::string_view{} : text,
                    .too_long = too_long,
                    .has_newline = found != nullptr,
                    .end = consumed_}};
    }
    if (at_end_) return Taken{};
    searched_ = available;
    if (available > limit_ + 1) {  // + 1: a carriage return is not counted
      too_long_ = true;
      consumed_ += available;
      begin_ = end_;
      searched_ = 0;
    }
    TROUPE_TRY(const State filled, fill(timeout));
    if (filled == State::not_yet) return Taken{State::not_yet, {}};
  }
}

Result<LineReader::Taken> LineReader::take(std::chrono::milliseconds timeout) {
  for (;;) {
    TROUPE_TRY(Taken taken, take_line(timeout));
    if (taken.state != State::line) return taken;
    Line& line = taken.line;
    constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
    if (line.number == 1 && line.text.starts_with(byte_order_mark)) {
      line.text.remove_prefix(byte_order_mark.size());
    }
    if (!shard_.has(line.number)) continue;
    if (line.too_long || !is_blank(line.text)) return taken;
  }
}

Result<std::optional<LineReader::Line>> LineReader::next() {
  for (;;) {
    TROUPE_TRY(const Taken taken, take(long_wait));
    if (taken.state == State::line) return std::optional<Line>(taken.line);
    if (taken.state == State::end) return std::optional<Line>{};
  }
}

Result<std::uint64_t> count_lines(const std::string& path, Shard shard,
                                  const KeepGoing& keep_going) {
  if (!is_rereadable(path)) return std::uint64_t{0};
  TROUPE_TRY(LineReader reader, LineReader::open(path, "input", chunk_bytes));
  reader.take_only(shard);
  std::uint64_t count = 0;
  for (;;) {
    TROUPE_TRY(const auto line, reader.next());
    if (!line) return count;
    if (count++ % LineReader::lines_between_asks == 0) {
      TROUPE_CHECK(check_goes_on(keep_going, path));
    }
  }
}

}  // namespace troupe
