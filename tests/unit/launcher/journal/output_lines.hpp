#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/batch/output/answer_format.hpp"

namespace troupe::journal_test {

/// The line of an answer.
inline std::string answer(std::string_view custom_id) {
  RequestHeader header;
  header.line = 7;
  header.custom_id = custom_id;
  Completion completion;
  completion.choices.push_back({});
  return format_answer(header, completion, {});
}

/// The error line of a line that is no JSON.
inline std::string error_line(std::size_t line, const std::optional<std::string>& custom_id) {
  return format_error({line, "invalid_json", "no } \"object\"", custom_id}, {});
}

}  // namespace troupe::journal_test
