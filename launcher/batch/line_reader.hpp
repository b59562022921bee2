#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe {

/// Cuts a file into lines with bounded memory (one line and 64 KiB). One thread at a time.
class LineReader {
 public:
  struct Line {
    std::size_t number = 0;  ///< counted from 1, blank lines too
    std::string_view text;   ///< without LF or CRLF; valid until the next call
    bool too_long = false;   ///< over the limit: text is empty, the line has been skipped
  };

  /// Opens `path`. Errors: not_found, permission_denied or invalid_argument (a folder), with a
  /// message that names the file and `role`, e.g. "input".
  static Result<LineReader> open(const std::string& path, std::string_view role,
                                 std::size_t line_limit_bytes);

  LineReader(LineReader&& other) noexcept;
  LineReader& operator=(LineReader&& other) noexcept;
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;
  ~LineReader();

  /// The next line that is not blank (spaces and tabs only), nullopt at the end. A missing final
  /// newline is legal; a UTF-8 byte order mark at the very beginning is skipped. Errors: io.
  Result<std::optional<Line>> next();

 private:
  LineReader(int fd, std::string path, std::size_t line_limit_bytes);
  Result<bool> fill();
  Result<std::optional<Line>> take_line();

  int fd_ = -1;
  std::string path_;
  std::size_t limit_ = 0;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;  ///< of what is unread in buffer_
  std::size_t end_ = 0;
  std::size_t number_ = 0;
  bool at_end_ = false;
};

/// How many lines of a regular file LineReader::next will give; 0 for what cannot be read twice (a
/// pipe). For progress.
Result<std::uint64_t> count_lines(const std::string& path);

}  // namespace troupe
