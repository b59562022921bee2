#pragma once

#include <cstdint>
#include <optional>

namespace troupe {

/// Memory of this machine that new processes can use (MemAvailable of /proc/meminfo); none where
/// that cannot be read.
std::optional<std::uint64_t> available_memory_bytes();

}  // namespace troupe
