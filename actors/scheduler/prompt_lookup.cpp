#include "actors/scheduler/prompt_lookup.hpp"

#include <algorithm>

namespace troupe {

std::vector<std::int32_t> look_up_continuation(std::span<const std::int32_t> tokens,
                                               std::int32_t longest, std::int32_t most) {
  if (most < 1 || tokens.size() < 2) return {};
  std::size_t best_length = 0;
  std::size_t best_end = 0;  // of the earlier occurrence
  for (std::size_t end = tokens.size() - 1; end > 0; --end) {
    const std::size_t room = std::min(end, static_cast<std::size_t>(longest));
    std::size_t length = 0;
    while (length < room && tokens[end - 1 - length] == tokens[tokens.size() - 1 - length]) {
      ++length;
    }
    if (length <= best_length) continue;
    best_length = length;
    best_end = end;
    if (length == static_cast<std::size_t>(longest)) break;
  }
  if (best_length == 0) return {};
  const auto following = tokens.subspan(best_end);
  const auto count = std::min(following.size(), static_cast<std::size_t>(most));
  return {following.begin(), following.begin() + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace troupe
