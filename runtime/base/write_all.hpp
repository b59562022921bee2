#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "runtime/base/result.hpp"

namespace troupe {

/// Writes all bytes to a blocking descriptor, in as many calls as it takes. Errors: io or what
/// errno says, with `what` in front ("cannot write FILE").
Result<void> write_all(int file, std::span<const std::byte> bytes, std::string_view what);

}  // namespace troupe
