#pragma once

#include <string>
#include <string_view>

#include "runtime/base/result.hpp"

namespace troupe {

/// Waits until what was written to an open file is on the disk. Errors: io or what errno says, with
/// `name`.
Result<void> sync_file(int file, const std::string& name);

/// Waits until the names that files got or lost in a folder are on the disk. File systems that
/// cannot do that are believed. Errors: as sync_file.
Result<void> sync_names_in(const std::string& folder);

/// Writes a file under another name, gives it its own when its bytes are on the disk, and syncs
/// that. Errors: as sync_file; the file is then what it was.
Result<void> write_synced(const std::string& path, std::string_view bytes);

}  // namespace troupe
