#include "launcher/eval/windows.hpp"

#include <algorithm>

namespace troupe {

std::vector<Window> cut_windows(std::size_t tokens, const WindowOptions& options) {
  std::vector<Window> windows;
  if (tokens < 2) return windows;
  const std::size_t length = std::min(tokens, static_cast<std::size_t>(options.length));
  const auto stride = static_cast<std::size_t>(options.stride);
  const auto most = static_cast<std::size_t>(options.most);
  for (std::size_t begin = 0; begin + length <= tokens; begin += stride) {
    if (most > 0 && windows.size() == most) break;
    const std::size_t known = begin == 0 || stride >= length ? 1 : length - stride;
    windows.push_back({begin, length, known});
  }
  return windows;
}

}  // namespace troupe
