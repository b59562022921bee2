#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// A summary of an output's error lines: the count of each code, and one of the lines.
struct ErrorTally {
  struct First {
    std::size_t line = 0;
    std::string code;
    std::string message;
  };
  std::uint64_t count = 0;
  std::map<std::string, std::uint64_t, std::less<>> by_code;
  std::optional<First> first;  ///< the one with the lowest line number

  void add(std::size_t line, std::string_view code, std::string_view message);
};

/// "12 error lines: 9 invalid_value, 3 model_not_found; line 4: temperature: expected ...": codes
/// ordered by count, the message cut to a readable length. Empty without errors.
std::string describe(const ErrorTally& errors);

}  // namespace troupe
