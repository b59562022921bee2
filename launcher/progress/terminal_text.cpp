#include "launcher/progress/terminal_text.hpp"

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

}  // namespace troupe
