#include "runtime/base/result.hpp"

#include <cstring>

namespace troupe {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::not_found:
      return "not_found";
    case ErrorCode::already_exists:
      return "already_exists";
    case ErrorCode::permission_denied:
      return "permission_denied";
    case ErrorCode::corrupt_data:
      return "corrupt_data";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::resource_exhausted:
      return "resource_exhausted";
    case ErrorCode::unschedulable:
      return "unschedulable";
    case ErrorCode::timed_out:
      return "timed_out";
    case ErrorCode::cancelled:
      return "cancelled";
    case ErrorCode::peer_died:
      return "peer_died";
    case ErrorCode::actor_died:
      return "actor_died";
    case ErrorCode::actor_unavailable:
      return "actor_unavailable";
    case ErrorCode::object_lost:
      return "object_lost";
    case ErrorCode::exception:
      return "exception";
    case ErrorCode::io:
      return "io";
    case ErrorCode::internal:
      return "internal";
  }
  return "unknown";
}

Error fail_errno(int errno_value, std::string_view what) {
  return fail(ErrorCode::io, "{}: {}", what, std::strerror(errno_value));
}

}  // namespace troupe
