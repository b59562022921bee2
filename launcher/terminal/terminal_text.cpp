#include "launcher/terminal/terminal_text.hpp"

#include <algorithm>
#include <utility>

#include "models/text/unicode/characters.hpp"
#include "models/text/unicode/utf8.hpp"

namespace troupe {

std::string on_one_line(std::string_view bytes) {
  std::string text;
  text::append_lossy(bytes, true, text);
  std::string line;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t character = text::next_code_point(text, at);
    text::append_code_point(text::is_control(character) ? U'\uFFFD' : character, line);
  }
  return line;
}

std::size_t columns_of(std::string_view line) {
  std::size_t columns = 0;
  for (std::size_t at = 0; at < line.size();) {
    columns += text::columns_of(text::next_code_point(line, at));
  }
  return columns;
}

std::string_view beginning_of(std::string_view line, std::size_t columns) {
  std::size_t taken = 0;
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t begin = at;
    taken += text::columns_of(text::next_code_point(line, at));
    if (taken > columns) return line.substr(0, begin);
  }
  return line;
}

std::string_view end_of(std::string_view line, std::size_t columns) {
  std::size_t left = columns_of(line);
  std::size_t begin = 0;
  while (left > columns) left -= text::columns_of(text::next_code_point(line, begin));
  return line.substr(begin);
}

std::vector<std::string> wrapped(std::string_view text, std::size_t columns) {
  std::vector<std::string> lines;
  for (bool more = true; more;) {
    const auto newline = text.find('\n');
    std::string_view rest = text.substr(0, newline);
    more = newline != text.npos;
    text.remove_prefix(more ? newline + 1 : text.size());
    std::string line;
    while (!rest.empty()) {
      const std::string_view word = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(word.size() + 1, rest.size()));
      if (word.empty()) continue;
      if (!line.empty() && columns_of(line) + 1 + columns_of(word) > columns) {
        lines.push_back(std::exchange(line, {}));
      }
      line += (line.empty() ? "" : " ") + std::string(word);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace troupe
