#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe {

/// The lengths of a request and its answer, without their texts.
struct RequestLengths {
  std::int32_t prompt_tokens = 1;
  std::int32_t max_tokens = 1;
  std::size_t line = 0;  ///< of the file, from 1

  friend bool operator==(const RequestLengths&, const RequestLengths&) = default;
};

/// Reads the first `most` lines "prompt_tokens,max_tokens" of a .csv file, each number from 1 to
/// 2^24. A first line with these words, and empty lines, are skipped. Errors: not_found if the file
/// cannot be read; invalid_argument with file and line for any other line, with the file if there
/// are no requests.
Result<std::vector<RequestLengths>> read_lengths_csv(const std::string& path, std::size_t most);

}  // namespace troupe
