#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "runtime/base/result.hpp"

namespace troupe {

struct OutputOptions {
  bool overwrite = false;  ///< a file with content is emptied instead of refused
  std::string input_path;  ///< refused as output; empty: not compared
};

/// Whether a BatchWriter could open `path` now; changes nothing. Errors: not_found (its folder),
/// already_exists (has content and no overwrite), permission_denied, invalid_argument (a folder, or
/// the input itself), each saying what to do.
Result<void> check_output(const std::string& path, const OutputOptions& options);

/// The output file: whole lines only, each appended by one write(2). One thread at a time.
class BatchWriter {
 public:
  /// Errors: those of check_output; already_exists also while another process writes the file.
  static Result<BatchWriter> open(const std::string& path, const OutputOptions& options);

  BatchWriter(BatchWriter&& other) noexcept;
  BatchWriter& operator=(BatchWriter&& other) noexcept;
  BatchWriter(const BatchWriter&) = delete;
  BatchWriter& operator=(const BatchWriter&) = delete;
  /// Closes without syncing; call finish() to know that the answers are on the disk.
  ~BatchWriter();

  /// Appends `line` and a newline. `line` holds no newline. Errors: io, resource_exhausted (disk
  /// full or quota); a line that went in only partly has been cut off again.
  Result<void> append(std::string_view line);

  /// fsync if lines were appended and the last one is a second ago. Call it while idle too.
  Result<void> sync_if_due(std::chrono::steady_clock::time_point now);

  /// Syncs what is left. Errors: io.
  Result<void> finish();

  std::uint64_t lines_written() const { return lines_; }

 private:
  BatchWriter(int fd, std::string path, bool is_regular);
  Result<void> sync();

  int fd_ = -1;
  std::string path_;
  bool is_regular_ = true;
  bool unsynced_ = false;
  std::chrono::steady_clock::time_point last_sync_;
  std::uint64_t lines_ = 0;
  std::string scratch_;
};

}  // namespace troupe
