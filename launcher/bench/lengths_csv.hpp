#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe {

/// How long a request and its answer are, without their texts.
struct RequestLengths {
  std::int32_t prompt_tokens = 1;
  std::int32_t max_tokens = 1;

  friend bool operator==(const RequestLengths&, const RequestLengths&) = default;
};

/// Reads a csv file whose first line names its columns, `prompt_tokens` and `max_tokens` among them
/// in any order; blank lines and other columns are passed over. Numbers are 1 to 2^24. Errors: io;
/// corrupt_data with file and line for anything else, for no requests at all as well.
Result<std::vector<RequestLengths>> read_lengths_csv(const std::string& path);

}  // namespace troupe
