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

/// What an output file holds already.
struct PastAnswers {
  LineIds ids;
  std::uint64_t lines = 0;        ///< answers and errors, each line of the input once
  ErrorTally errors;              ///< of them
  std::uint64_t whole_bytes = 0;  ///< of the file; what follows was torn off in the middle
  std::uint64_t retried = 0;      ///< error lines that are to be asked again; in no other count
};

/// What a line of an output file says of itself.
struct AnswerKey {
  std::optional<std::string> custom_id;
  bool is_error = false;
  // The rest is of an error.
  std::size_t line = 0;  ///< of the input
  std::string code;
  std::string message;
};
/// nullopt for a line that is no answer in our form. Of an answer only what comes before its
/// content is looked at, and the last brace; and for zero bytes, which a power cut may leave
/// anywhere.
std::optional<AnswerKey> read_answer_key(std::string_view line);

/// Whether the request of an error line is to be asked again; null: never.
using AskedAgain = std::function<bool(const AnswerKey& error)>;

/// Reads the output file at `path`: packed as its name says, in the form of format_answer and
/// format_error (answer_format.hpp). A line that is cut short or no JSON may be the last one: it is
/// torn. Errors: io; corrupt_data for any other line that is no answer, with its number and what
/// can be done, and for a file whose name does not say how it is packed; cancelled.
Result<PastAnswers> read_past_answers(const std::string& path,
                                      const AskedAgain& asked_again = nullptr,
                                      const KeepGoing& keep_going = nullptr);

/// Takes the error lines that are asked again out of the first `whole_bytes` of an output file, and
/// all that follows those: a file with the rest replaces it as a whole. Returns its size in bytes.
/// Errors: io, resource_exhausted; cancelled.
Result<std::uint64_t> drop_error_lines(const std::string& path, std::uint64_t whole_bytes,
                                       const AskedAgain& asked_again,
                                       const KeepGoing& keep_going = nullptr);

}  // namespace troupe
