#include "runtime/base/control_groups.hpp"

#include <fstream>
#include <string_view>

namespace troupe {

std::vector<MemoryGroup> memory_groups() {
  std::vector<MemoryGroup> found;
  std::ifstream groups("/proc/self/cgroup");  // lines "number:controllers:group"
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const bool is_v2 = second == first + 1;
    const std::string_view controllers = std::string_view(line).substr(first + 1, second - first);
    if (!is_v2 && controllers.find("memory") == std::string_view::npos) continue;
    found.push_back({is_v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory", line.substr(second + 1)});
  }
  return found;
}

}  // namespace troupe
