#pragma once

#include <string_view>

namespace troupe {

/// The response of OpenAI's servers to a request that fails with one of our error codes.
struct ErrorKind {
  int status_code = 400;
  std::string_view type = "invalid_request_error";
};
ErrorKind error_kind(std::string_view code);

}  // namespace troupe
