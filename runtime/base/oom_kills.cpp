#include "runtime/base/oom_kills.hpp"

#include <fstream>

#include "runtime/base/control_groups.hpp"

namespace troupe {
namespace {

/// From a file of lines "name number".
std::optional<OomKills> kills_in(const std::filesystem::path& file) {
  std::ifstream lines(file);
  std::string name;
  std::uint64_t number = 0;
  while (lines >> name >> number) {
    if (name == "oom_kill") return OomKills{number, file.string()};
  }
  return std::nullopt;
}

}  // namespace

std::optional<OomKills> oom_kills_in(const std::filesystem::path& folder) {
  if (auto kills = kills_in(folder / "memory.events")) return kills;
  return kills_in(folder / "memory.oom_control");
}

std::optional<OomKills> oom_kills() {
  for (const MemoryGroup& group : memory_groups()) {
    if (auto kills = oom_kills_in(group.folder())) return kills;
  }
  return kills_in("/proc/vmstat");
}

}  // namespace troupe
