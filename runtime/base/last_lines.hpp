#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace troupe {

/// The last lines of a text file, as they stand there; a line that does not end counts. Reads at
/// most the last 64 KiB. Empty if it cannot be read.
std::vector<std::string> last_lines(const std::string& path, std::size_t count = 20);

}  // namespace troupe
