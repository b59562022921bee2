#include "runtime/base/available_memory.hpp"

#include <fstream>
#include <string>

namespace troupe {

std::optional<std::uint64_t> available_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  std::uint64_t kib = 0;
  while (file >> key >> kib >> unit) {
    if (key == "MemAvailable:") return kib * 1024;
  }
  return std::nullopt;
}

}  // namespace troupe
