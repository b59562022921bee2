#pragma once

#include <string>

#include "runtime/base/result.hpp"
#include "runtime/state/messages.hpp"

namespace troupe {

/// Reads a piece of a regular file, as AskLog says, into `piece`, whose path is given. A file that
/// is not there is no error. Errors: io.
Result<LogPiece> read_log_piece(LogPiece piece, const AskLog& ask);

/// The file that this process's stderr goes to, if it is a regular one that has a path; else empty.
std::string stderr_path();

}  // namespace troupe
