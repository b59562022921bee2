#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/compression/compression.hpp"
#include "runtime/base/keep_going.hpp"
#include "runtime/base/result.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

struct OutputOptions {
  std::string input_path;        ///< refused as output; empty: not compared
  std::uint64_t keep_bytes = 0;  ///< of a file with content; the rest is cut off
  /// The file's size when keep_bytes was decided, 0 if there was none: a file of another size is
  /// left alone. nullopt: a file of any size is cut.
  std::optional<std::uint64_t> size_before = std::nullopt;
  /// Called about every 50 ms while a pipe has no room or no reader; false gives up. Null: waits.
  KeepGoing keep_waiting = nullptr;
  /// Whether lines that a full disk does not take wait in memory (OutputBacklog). False: append
  /// drops such a line, and fails.
  bool keeps_backlog = false;
};

/// Lines that wait in memory, as the disk is full (ENOSPC) or a quota is used up (EDQUOT).
struct OutputBacklog {
  std::string reason;     ///< "cannot write the output out.jsonl: No space left on device"
  std::size_t lines = 0;  ///< that wait
  std::size_t bytes = 0;  ///< of these
};

/// Checks that a BatchWriter could open `path` now; changes nothing. Errors: not_found (its
/// folder), permission_denied, invalid_argument (a folder, or the input itself), each saying what
/// to do.
Result<void> check_output(const std::string& path, const OutputOptions& options);

/// The output, in whole lines only. In a file each line is appended by one write(2) and synced
/// within a second. A file whose name ends in .gz or .zst gets the lines of about a second as one
/// member (compression.hpp), by one write. "-" is standard output. One thread at a time.
///
/// With OutputOptions::keeps_backlog lines wait in memory while the disk is full; calls succeed,
/// and sync_if_due tries again every second. Lines that a file system took and lost when it was
/// synced (network file systems tell a full disk only then) are cut off and wait, too.
class BatchWriter {
 public:
  /// Errors: those of check_output; already_exists while another process writes the file, or if one
  /// has written it since size_before; io; cancelled by keep_waiting (a FIFO has no reader).
  static Result<BatchWriter> open(const std::string& path, OutputOptions options);

  BatchWriter(BatchWriter&&) noexcept = default;
  BatchWriter& operator=(BatchWriter&&) noexcept = default;

  /// Appends `line` and a newline. `line` holds no newline. Errors: io; resource_exhausted (disk
  /// full or quota, without keeps_backlog); not_found for a file that was deleted meanwhile,
  /// noticed when it is synced; cancelled by keep_waiting. A partial write to a file is cut off
  /// again.
  Result<void> append(std::string_view line);

  /// Writes lines that wait and syncs, if there are any that are not synced and the last sync, or
  /// the last try of it, is a second ago. Call it while idle too. Errors: as append.
  Result<void> sync_if_due(std::chrono::steady_clock::time_point now);

  /// Writes and syncs the remaining lines. The destructor does not. Errors: as append, and
  /// resource_exhausted while there is a backlog, which stays.
  Result<void> finish();

  /// The lines for which the disk has no room; null if there are none.
  const OutputBacklog* backlog() const { return backlog_ ? &*backlog_ : nullptr; }
  /// Lines that were appended and are not in the output: those of the backlog, and those that an
  /// error has lost.
  std::size_t missing_lines() const { return lost_lines_ + (backlog_ ? backlog_->lines : 0); }

 private:
  /// What is written by one write(2): a line, or a member of packed lines.
  struct Block {
    std::string text;
    std::size_t lines = 1;
  };
  struct Amount {
    std::size_t lines = 0;
    std::size_t bytes = 0;
    void add(const Block& block) {
      lines += block.lines;
      bytes += block.text.size();
    }
    void remove(const Block& block) {
      lines -= block.lines;
      bytes -= block.text.size();
    }
  };

  BatchWriter(UniqueFd fd, std::string path, bool is_regular, OutputOptions options);
  Result<void> begin_file(const std::string& folder);
  void add(Block block);
  Result<void> pack();
  Result<void> sync();
  Result<void> sync_file();
  Result<void> write_blocks();
  Result<void> write(std::string_view bytes);
  Result<void> wait_for_room();
  Result<void> keep_or_fail(int why);
  Error lose_unwritten(Error why);
  Result<void> cut_to(std::uint64_t bytes, int why);
  void count_backlog();

  UniqueFd fd_;
  std::string path_;
  bool is_regular_ = true;
  OutputOptions options_;
  Compression compression_ = Compression::none;
  bool has_name_ = false;  ///< true if the file had a name and the file system counts names
  bool unsynced_ = false;
  std::chrono::steady_clock::time_point last_sync_;
  std::string pending_;               ///< lines to be packed
  std::size_t pending_lines_ = 0;     ///< of these
  std::deque<Block> blocks_;          ///< not synced, in order
  std::size_t written_blocks_ = 0;    ///< the first ones, which are in the file
  Amount unwritten_;                  ///< in the other ones
  std::size_t lost_lines_ = 0;        ///< by an error
  std::size_t written_of_block_ = 0;  ///< bytes of the next one that a pipe has taken
  std::uint64_t file_bytes_ = 0;      ///< of a file, with the blocks that are in it
  std::uint64_t synced_bytes_ = 0;    ///< of a file, at its last sync
  std::optional<OutputBacklog> backlog_;
};

}  // namespace troupe
