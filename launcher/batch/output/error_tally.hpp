#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// The error lines of an output in short: how many there are of each code, and one of them.
struct ErrorTally {
  struct First {
    std::size_t line = 0;
    std::string code;
    std::string message;
  };
  std::uint64_t count = 0;
  std::map<std::string, std::uint64_t, std::less<>> by_code;
  std::optional<First> first;  ///< that of the lowest line number

  void add(std::size_t line, std::string_view code, std::string_view message);
};

/// "12 error lines: 9 invalid_value, 3 model_not_found; line 4: temperature: expected ...": the
/// codes by their counts, the message cut to a length that a person reads. Empty without errors.
std::string describe(const ErrorTally& errors);

}  // namespace troupe
