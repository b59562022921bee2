#pragma once

#include <string_view>

#include "runtime/base/result.hpp"

namespace troupe {

/// Logs `what` and the error and ends the process if `done` failed. For errors that only a bug of
/// ours can cause, where going on would corrupt what others rely on.
void require(const Result<void>& done, std::string_view what);
/// Likewise if `holds` is false.
void require(bool holds, std::string_view what);

}  // namespace troupe
