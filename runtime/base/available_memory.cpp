#include "runtime/base/available_memory.hpp"

#include <algorithm>
#include <fstream>
#include <string>

#include "runtime/base/control_groups.hpp"

namespace troupe {
namespace {

std::optional<std::uint64_t> number_in(const std::filesystem::path& file) {
  std::uint64_t number = 0;
  if (std::ifstream(file) >> number) return number;
  return std::nullopt;  // "max", too
}

/// The number that `name` has in a file of lines "name number".
std::uint64_t named_in(const std::filesystem::path& file, const std::string& name) {
  std::ifstream lines(file);
  std::string key;
  std::uint64_t number = 0;
  while (lines >> key >> number) {
    if (key == name) return number;
  }
  return 0;
}

std::optional<std::uint64_t> left_in(const std::filesystem::path& folder) {
  const bool is_v2 = std::filesystem::exists(folder / "memory.current");
  const auto limit = number_in(folder / (is_v2 ? "memory.max" : "memory.limit_in_bytes"));
  const auto used = number_in(folder / (is_v2 ? "memory.current" : "memory.usage_in_bytes"));
  if (!limit || !used) return std::nullopt;
  // Cached files count as used, but are dropped when memory is needed.
  const std::uint64_t cached =
      named_in(folder / "memory.stat", is_v2 ? "inactive_file" : "total_inactive_file");
  const std::uint64_t held = *used - std::min(cached, *used);
  return *limit - std::min(held, *limit);
}

std::optional<std::uint64_t> least(std::optional<std::uint64_t> a, std::optional<std::uint64_t> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

std::optional<std::uint64_t> machine_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  std::uint64_t kib = 0;
  while (file >> key >> kib >> unit) {
    if (key == "MemAvailable:") return kib * 1024;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> memory_left_in_group(const std::filesystem::path& root,
                                                  const std::filesystem::path& group) {
  std::optional<std::uint64_t> left = left_in(root);
  std::filesystem::path folder = root;
  for (const auto& part : group.relative_path()) left = least(left, left_in(folder /= part));
  return left;
}

std::optional<std::uint64_t> available_memory_bytes() {
  std::optional<std::uint64_t> available = machine_bytes();
  for (const MemoryGroup& group : memory_groups()) {
    available = least(available, memory_left_in_group(group.root, group.group));
  }
  return available;
}

}  // namespace troupe
