#pragma once

#include <chrono>
#include <string>
#include <variant>

#include "launcher/batch/input/line_ids.hpp"
#include "launcher/batch/input/line_reader.hpp"
#include "launcher/batch/input/request_parser.hpp"

namespace troupe {

/// Reads the requests of a batch file: cuts lines, parses them, and rejects a custom_id that an
/// earlier line had (even a line that was an error). One thread at a time.
class BatchReader {
 public:
  struct End {};
  struct NotYet {};          ///< no whole line came from a pipe in time
  struct AnsweredBefore {};  ///< an earlier run has answered this line
  using Item = std::variant<End, NotYet, AnsweredBefore, LineError, BatchRequest>;

  /// Reads the lines of `shard`; `answered` are those that an earlier run has answered. Errors as
  /// LineReader::open.
  static Result<BatchReader> open(const std::string& path, ParseContext context,
                                  LineIds answered = {}, Shard shard = {});

  /// Returns the next item; waits for a pipe at most `timeout` for each piece of the line. Errors:
  /// as ByteSource::read.
  Result<Item> next(std::chrono::milliseconds timeout = std::chrono::hours(1));

 private:
  BatchReader(LineReader lines, ParseContext context, LineIds ids);
  Item judge(const LineReader::Line& line);

  LineReader lines_;
  ParseContext context_;
  LineIds ids_;
};

}  // namespace troupe
