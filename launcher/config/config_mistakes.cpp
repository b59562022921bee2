#include "launcher/config/config_mistakes.hpp"

#include <algorithm>
#include <limits>

namespace troupe {

void ConfigMistakes::add(int line, std::string_view where, std::string_view what) {
  mistakes_.push_back(
      {line == 0 ? std::numeric_limits<int>::max() : line, fmt::format("{}: {}", where, what)});
}

Error ConfigMistakes::error() const {
  std::vector<Mistake> sorted = mistakes_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Mistake& a, const Mistake& b) { return a.line < b.line; });
  std::string message;
  for (std::size_t i = 0; i < std::min(sorted.size(), max_reported); ++i) {
    message += (i == 0 ? "" : "\n") + sorted[i].text;
  }
  if (sorted.size() > max_reported) {
    message += fmt::format("\n... and {} more", sorted.size() - max_reported);
  }
  return {ErrorCode::invalid_argument, message};
}

}  // namespace troupe
