#pragma once

#include <string>

#include "runtime/base/result.hpp"
#include "runtime/call/codec.hpp"
#include "runtime/process/child_channel.hpp"

namespace troupe {

/// Refuses construction arguments that are too large (invalid_argument): agents forward them in one
/// message, together with names and numbers.
inline Result<void> check_argument_bytes(const std::string& type, const Bytes& arguments) {
  constexpr std::size_t limit = ChildChannel::max_message_bytes - (std::size_t{1} << 20);
  if (arguments.size() <= limit) return {};
  return fail(ErrorCode::invalid_argument,
              "the construction arguments of a {} have {} bytes; the limit is {}", type,
              arguments.size(), limit);
}

}  // namespace troupe
