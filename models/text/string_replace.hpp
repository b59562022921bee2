#pragma once

#include <string>
#include <string_view>

namespace troupe::text {

/// Returns `text` with every `from`, left to right and not overlapping, replaced by `to`. An empty
/// `from` is never found.
inline std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  std::size_t copied = 0;
  if (!from.empty()) {
    for (auto at = text.find(from); at != text.npos; at = text.find(from, copied)) {
      out.append(text, copied, at - copied).append(to);
      copied = at + from.size();
    }
  }
  return out.append(text, copied);
}

}  // namespace troupe::text
