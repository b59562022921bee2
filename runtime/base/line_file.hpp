#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "runtime/base/result.hpp"

namespace troupe {

/// A log file that never holds up who writes to it for want of room: text that the disk does not
/// take is dropped, and a line tells how much once there is room. Other processes may append to the
/// same file. Not synchronised.
class LineFile {
 public:
  /// Makes a line, with its newline, of "3 lines of this log were dropped, as the disk did not take
  /// them".
  using MakeLine = std::function<std::string(const std::string& text)>;

  /// Opens the file to append to it, and makes it if it is not there; on a full disk append does
  /// that later. Errors: io and what errno says.
  static Result<LineFile> open(const std::string& path);
  LineFile(LineFile&& other) noexcept;
  LineFile& operator=(LineFile&&) = delete;
  ~LineFile();

  /// Appends whole lines, each with its newline, by one write(2); before them one that `make_line`
  /// makes if any were dropped. False if the disk did not take them: they are dropped; a part of
  /// them that it took is ended before the next ones.
  bool append(std::string_view lines, const MakeLine& make_line = of_troupe);

  const std::string& path() const { return path_; }

 private:
  static std::string of_troupe(const std::string& text);
  bool write(std::string_view lines);
  explicit LineFile(std::string path) : path_(std::move(path)) {}
  bool open_file();

  int fd_ = -1;
  std::string path_;
  bool is_torn_ = false;       ///< the file ends within a line of ours
  std::uint64_t dropped_ = 0;  ///< lines that it does not tell of yet
};

}  // namespace troupe
