#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/batch/input/byte_source.hpp"
#include "launcher/batch/input/shard.hpp"
#include "runtime/base/keep_going.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Splits a file, unpacked if it is gzip or zstd, into lines with bounded memory (one line and 64
/// KiB). One thread at a time.
class LineReader {
 public:
  /// Callers that read many lines call their KeepGoing after this many.
  static constexpr std::size_t lines_between_asks = 1024;

  struct Line {
    std::size_t number = 0;   ///< counted from 1, blank lines too
    std::string_view text;    ///< without LF or CRLF; valid until the next call
    bool too_long = false;    ///< over the limit: text is empty, the line has been skipped
    bool has_newline = true;  ///< false for a last line that ends with the file
    std::uint64_t end = 0;    ///< unpacked bytes of the file up to the end of this line's newline
  };

  /// Opens `path`; errors and arguments as ByteSource::open.
  static Result<LineReader> open(const std::string& path, std::string_view role,
                                 std::size_t line_limit_bytes,
                                 std::uint64_t max_bytes = UINT64_MAX);

  /// From now on only the lines of `shard` are returned, with their numbers in the whole file.
  void take_only(Shard shard) { shard_ = shard; }

  /// Returns the next line that is not blank (spaces and tabs only), nullopt at the end. A missing
  /// final newline is legal; a UTF-8 byte order mark at the very beginning is skipped. Waits for a
  /// pipe without limit. Errors: as ByteSource::read.
  Result<std::optional<Line>> next();

  /// The same with a wait of at most `timeout` for each piece of a line.
  enum class State { line, end, not_yet };
  struct Taken {
    State state = State::end;
    Line line;  ///< for State::line
  };
  Result<Taken> take(std::chrono::milliseconds timeout);

 private:
  LineReader(ByteSource source, std::size_t line_limit_bytes);
  Result<State> fill(std::chrono::milliseconds timeout);
  Result<Taken> take_line(std::chrono::milliseconds timeout);

  ByteSource source_;
  std::size_t limit_ = 0;
  Shard shard_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;  ///< start of the unread bytes in buffer_
  std::size_t end_ = 0;
  std::size_t searched_ = 0;  ///< bytes from begin_ on known to hold no newline
  bool too_long_ = false;     ///< the beginning of the line at begin_ was discarded
  std::size_t number_ = 0;
  std::uint64_t consumed_ = 0;
  bool at_end_ = false;
};

/// Returns how many lines of a regular file LineReader::next will return; 0 if it cannot be read
/// twice (a pipe). For progress. Errors: as LineReader; cancelled.
Result<std::uint64_t> count_lines(const std::string& path, Shard shard = {},
                                  const KeepGoing& keep_going = nullptr);

}  // namespace troupe
