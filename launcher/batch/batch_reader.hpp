#pragma once

#include <optional>
#include <string>
#include <variant>

#include "launcher/batch/duplicate_ids.hpp"
#include "launcher/batch/line_reader.hpp"
#include "launcher/batch/request_parser.hpp"

namespace troupe {

/// The requests of a batch file, one after another: lines cut, parsed and checked for a custom_id
/// that was there before (also on a line that was itself an error). One thread at a time.
class BatchReader {
 public:
  /// Errors as LineReader::open.
  static Result<BatchReader> open(const std::string& path, ParseContext context);

  /// The next line as a request or as the error it is; nullopt at the end of the file. Errors: io.
  Result<std::optional<std::variant<BatchRequest, LineError>>> next();

 private:
  BatchReader(LineReader lines, ParseContext context);

  LineReader lines_;
  ParseContext context_;
  DuplicateIds seen_;
};

}  // namespace troupe
