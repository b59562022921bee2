#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace troupe {

/// Shortens and cleans a name for a message: garbage headers have garbage names.
inline std::string printable_name(std::string_view name) {
  constexpr std::size_t limit = 120;
  std::string text(name.substr(0, limit));
  std::ranges::replace_if(text, [](char c) { return static_cast<unsigned char>(c) < 0x20; }, '?');
  return text;
}

}  // namespace troupe
