#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "runtime/base/result.hpp"

namespace troupe {

/// The text of a file, or its beginning.
struct FileText {
  std::string text;
  bool is_whole = true;
};

/// Reads at most `max_bytes` of a file, a pipe or standard input, unpacked. Errors: those of
/// ByteSource, with `role`.
Result<FileText> read_text(const std::string& path, std::string_view role, std::size_t max_bytes);

}  // namespace troupe
