#pragma once

#include <string_view>

#include "runtime/base/result.hpp"

namespace troupe {

/// Ends the process with `what` and the error in the log if `done` failed. For results that only a
/// bug of ours can make errors, where to go on would corrupt what others rely on.
void require(const Result<void>& done, std::string_view what);
/// Likewise if `holds` is false.
void require(bool holds, std::string_view what);

}  // namespace troupe
