#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/batch/input/line_ids.hpp"
#include "launcher/batch/output/error_tally.hpp"
#include "runtime/base/keep_going.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The existing content of an output file.
struct PastAnswers {
  LineIds ids;
  std::uint64_t lines = 0;        ///< answers and errors, each line of the input once
  ErrorTally errors;              ///< of the error lines
  std::uint64_t whole_bytes = 0;  ///< of the file; the rest was cut off during writing
  std::uint64_t retried = 0;      ///< error lines to retry; in no other count
};

/// The identifying fields of a line of an output file.
struct AnswerKey {
  std::optional<std::string> custom_id;
  bool is_error = false;
  // The remaining fields are an error's.
  std::size_t line = 0;  ///< of the input
  std::string code;
  std::string message;
};
/// Returns nullopt for a line that is no answer in our form. In an answer only the part before its
/// content and the last brace are checked, and that there are no zero bytes, which a power cut may
/// leave anywhere.
std::optional<AnswerKey> read_answer_key(std::string_view line);

/// True if the request of an error line is to be retried; null: never.
using AskedAgain = std::function<bool(const AnswerKey& error)>;

/// Reads the output file at `path`: packed as its name says, in the form of format_answer and
/// format_error (answer_format.hpp). The last line may be cut short or no JSON. Errors: io;
/// corrupt_data for any other line that is no answer, with its number and what can be done, and for
/// a file whose name does not match its packing; cancelled.
Result<PastAnswers> read_past_answers(const std::string& path,
                                      const AskedAgain& asked_again = nullptr,
                                      const KeepGoing& keep_going = nullptr);

/// Removes the error lines to retry from the first `whole_bytes` of an output file, and everything
/// after those bytes, by atomically replacing the file. Returns its size in bytes. Errors: io,
/// resource_exhausted; cancelled.
Result<std::uint64_t> drop_error_lines(const std::string& path, std::uint64_t whole_bytes,
                                       const AskedAgain& asked_again,
                                       const KeepGoing& keep_going = nullptr);

}  // namespace troupe
