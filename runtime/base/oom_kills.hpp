#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace troupe {

/// How many processes the kernel has killed because memory had run out.
struct OomKills {
  std::uint64_t count = 0;
  std::string source;  ///< the file that says so
};

/// The processes of this process's memory control group (memory.events of version 2,
/// memory.oom_control of version 1), whatever ran out: the group's memory, a parent's or the
/// machine's. Where neither is there, those of the machine (/proc/vmstat). None if nothing says.
std::optional<OomKills> oom_kills();

/// The same of a control group's folder. None if it does not say.
std::optional<OomKills> oom_kills_in(const std::filesystem::path& folder);

}  // namespace troupe
