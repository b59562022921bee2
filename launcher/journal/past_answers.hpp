#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "launcher/batch/input/line_ids.hpp"
#include "runtime/base/keep_going.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// What an output file holds already.
struct PastAnswers {
  LineIds ids;
  std::uint64_t lines = 0;        ///< answers and errors, each line of the input once
  std::uint64_t errors = 0;       ///< of them
  std::uint64_t whole_bytes = 0;  ///< of the file; what follows was torn off in the middle
};

/// Reads the output file at `path`: packed as its name says, in the form of format_answer and
/// format_error (answer_format.hpp). A line that is cut short or no JSON may be the last one: it is
/// torn. Errors: io; corrupt_data for any other line that is no answer, with its number and what
/// can be done, and for a file whose name does not say how it is packed; cancelled.
Result<PastAnswers> read_past_answers(const std::string& path,
                                      const KeepGoing& keep_going = nullptr);

/// What a line of an output file says of itself.
struct AnswerKey {
  bool is_error = false;
  std::size_t line = 0;  ///< of the input; of an error
  std::optional<std::string> custom_id;
};
/// nullopt for a line that is no answer in our form. Only what comes before the answer's content is
/// looked at, and the last brace; and for zero bytes, which a power cut may leave anywhere.
std::optional<AnswerKey> read_answer_key(std::string_view line);

}  // namespace troupe
