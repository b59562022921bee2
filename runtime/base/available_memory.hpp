#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace troupe {

/// Memory of this machine that new processes can use: the minimum of what the machine reports
/// (MemAvailable of /proc/meminfo) and what its control groups leave (cgroup v1 and v2, as of
/// containers and batch systems); none where that cannot be read.
std::optional<std::uint64_t> available_memory_bytes();

/// Memory that the control group `group` ("/a/b") and its parents leave of their limits. `root` is
/// the mount point of version 2, or of version 1's memory controller. None without a limit.
std::optional<std::uint64_t> memory_left_in_group(const std::filesystem::path& root,
                                                  const std::filesystem::path& group);

}  // namespace troupe
