#include "launcher/bench/faults/process_table.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

namespace troupe {

Result<ProcessEntry> process_entry(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  const auto name_end = line.rfind(')');
  if (name_end == std::string::npos) {
    return fail(ErrorCode::not_found, "there is no process {}", pid);
  }
  ProcessEntry entry{.pid = pid};
  std::istringstream fields(line.substr(name_end + 1));
  std::string skipped;
  fields >> skipped >> entry.parent;  // fields 3 and 4
  for (int field = 5; field < 22; ++field) fields >> skipped;
  fields >> entry.started;
  if (!fields) return fail(ErrorCode::corrupt_data, "/proc/{}/stat cannot be read", pid);
  return entry;
}

std::vector<ProcessEntry> children_of(int pid) {
  std::vector<ProcessEntry> children;
  std::error_code ignored;
  for (const auto& folder : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = folder.path().filename();
    int number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    const auto entry = process_entry(number);
    if (entry.ok() && entry->parent == pid) children.push_back(*entry);
  }
  std::ranges::sort(children, {}, &ProcessEntry::pid);
  return children;
}

Result<std::uint64_t> resident_bytes(int pid) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  std::string word;
  while (file >> word) {
    std::uint64_t kibibytes = 0;
    if (word == "VmRSS:" && file >> kibibytes) return kibibytes << 10U;
  }
  return fail(ErrorCode::not_found, "there is no process {}", pid);
}

}  // namespace troupe
