#pragma once

#include <string>
#include <string_view>

#include "runtime/base/result.hpp"

namespace troupe {

/// Writes `text` to a temporary file that then replaces the file at `path`. Errors: io with the
/// file's name.
Result<void> write_file(const std::string& path, std::string_view text);

}  // namespace troupe
