#include "runtime/base/last_lines.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>

namespace troupe {

std::vector<std::string> last_lines(const std::string& path, std::size_t count) {
  constexpr std::streamoff most = std::streamoff{64} << 10;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff bytes = file.tellg();
  if (!file || bytes < 0) return {};
  const bool is_cut = bytes > most;
  file.seekg(is_cut ? bytes - most : 0);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(std::move(line));
  if (is_cut && !lines.empty()) lines.erase(lines.begin());  // its beginning is missing
  const auto left_out = lines.size() - std::min(lines.size(), count);
  lines.erase(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(left_out));
  return lines;
}

}  // namespace troupe
