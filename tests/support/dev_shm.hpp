#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace troupe::test {

/// Entries of /dev/shm with the runtime's name in them.
inline std::vector<std::string> dev_shm_entries() {
  std::vector<std::string> entries;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (name.find("troupe") != std::string::npos) entries.push_back(name);
  }
  return entries;
}

}  // namespace troupe::test
