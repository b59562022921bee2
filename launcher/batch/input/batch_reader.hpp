#pragma once

#include <chrono>
#include <string>
#include <variant>

#include "launcher/batch/input/line_ids.hpp"
#include "launcher/batch/input/line_reader.hpp"
#include "launcher/batch/input/request_parser.hpp"

namespace troupe {

/// The requests of a batch file, one after another: lines cut, parsed and checked for a custom_id
/// that was there before (also on a line that was itself an error). One thread at a time.
class BatchReader {
 public:
  struct End {};
  struct NotYet {};          ///< a pipe had no whole line in time
  struct AnsweredBefore {};  ///< a line that an earlier run has answered
  using Item = std::variant<End, NotYet, AnsweredBefore, LineError, BatchRequest>;

  /// `answered` are the lines that an earlier run has answered. Errors as LineReader::open.
  static Result<BatchReader> open(const std::string& path, ParseContext context,
                                  LineIds answered = {});

  /// What the next line is; waits for a pipe at most `timeout` for each piece of it. Errors: as
  /// ByteSource::read.
  Result<Item> next(std::chrono::milliseconds timeout = std::chrono::hours(1));

 private:
  BatchReader(LineReader lines, ParseContext context, LineIds ids);
  Item judge(const LineReader::Line& line);

  LineReader lines_;
  ParseContext context_;
  LineIds ids_;
};

}  // namespace troupe
