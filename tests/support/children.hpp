#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace troupe::test {

/// The children of a process, whichever of its threads have started them; none if it has ended.
inline std::vector<int> children_of(int pid) {
  std::vector<int> children;
  std::error_code error;
  const std::filesystem::path threads = "/proc/" + std::to_string(pid) + "/task";
  for (const auto& thread : std::filesystem::directory_iterator(threads, error)) {
    std::ifstream list(thread.path() / "children");
    for (int child = 0; list >> child;) children.push_back(child);
  }
  return children;
}

}  // namespace troupe::test
