#include "actors/executor/stop_strings.hpp"

namespace troupe {

std::optional<StopMatch> find_stop_string(std::span<const std::string> strings,
                                          std::string_view text, std::size_t searched) {
  for (std::size_t i = 0; i < strings.size(); ++i) {
    const std::size_t length = strings[i].size();
    const std::size_t from = searched + 1 > length ? searched + 1 - length : 0;
    const std::size_t begin = text.find(strings[i], from);
    if (begin != text.npos) return StopMatch{i, begin, begin + length};
  }
  return std::nullopt;
}

}  // namespace troupe
