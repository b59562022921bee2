#include "launcher/batch/output/error_kind.hpp"

namespace troupe {

ErrorKind error_kind(std::string_view code) {
  if (code == "model_not_found") return {404, "invalid_request_error"};
  if (code == "not_finite" || code == "process_crashed") return {500, "server_error"};
  return {};
}

}  // namespace troupe
