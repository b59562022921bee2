#include "runtime/base/terminal_text.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <sys/ioctl.h>
#include <unistd.h>

#include "runtime/base/character_width.hpp"

namespace troupe {
namespace {

/// Of a program's help.
constexpr std::size_t help_columns = 80;
constexpr std::size_t text_column = 24;

struct Range {
  char32_t first, last;
};

/// Controls, ends of lines and paragraphs, and marks of direction (UAX 9).
constexpr std::array<Range, 6> not_printed{{{0x0, 0x1f},
                                            {0x7f, 0x9f},
                                            {0x61c, 0x61c},
                                            {0x200e, 0x200f},
                                            {0x2028, 0x202e},
                                            {0x2066, 0x2069}}};

bool is_unprintable(char32_t character) {
  return std::ranges::any_of(not_printed, [character](const Range& range) {
    return range.first <= character && character <= range.last;
  });
}

/// The character of these bytes, which are one of valid UTF-8.
char32_t character_of(std::string_view bytes) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  if (bytes.size() == 1) return byte(0);
  char32_t character = byte(0) & (0x7fU >> bytes.size());
  for (std::size_t i = 1; i < bytes.size(); ++i) character = character << 6U | (byte(i) & 0x3fU);
  return character;
}

/// Takes the character at `at` of printable text, and moves `at` behind it.
std::size_t take_width(std::string_view text, std::size_t& at) {
  const std::size_t bytes = std::max<std::size_t>(utf8_bytes(text, at), 1);
  return width_of(character_of(text.substr(std::exchange(at, at + bytes), bytes)));
}

/// Appends the lines of one line of a text.
void wrap_line(std::string_view rest, std::size_t columns, std::size_t indent,
               std::vector<std::string>& lines) {
  std::string line;
  bool has_word = false;
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    if (word.empty()) continue;
    if (has_word && columns != 0 && width_of(line) + 1 + width_of(word) > columns) {
      lines.push_back(std::exchange(line, std::string(indent, ' ')));
      has_word = false;
    }
    if (has_word) line += ' ';
    line += word;
    has_word = true;
  }
  lines.push_back(std::move(line));
}

}  // namespace

std::size_t utf8_bytes(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t bytes = lead >= 0xc2 && lead < 0xe0   ? 2
                            : lead >= 0xe0 && lead < 0xf0 ? 3
                            : lead >= 0xf0 && lead < 0xf5 ? 4
                                                          : 0;
  if (bytes == 0 || at + bytes > text.size()) return 0;
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool is_overlong = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xf0 && byte(1) < 0x90);
  const bool is_surrogate = lead == 0xed && byte(1) >= 0xa0;
  const bool is_too_large = lead == 0xf4 && byte(1) >= 0x90;
  return is_overlong || is_surrogate || is_too_large ? 0 : bytes;
}

std::string printable(std::string_view bytes) {
  std::string text;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t count = utf8_bytes(bytes, at);
    const std::string_view character = bytes.substr(at, std::max<std::size_t>(count, 1));
    if (count == 0 || is_unprintable(character_of(character))) {
      text += '?';
    } else {
      text += character;
    }
    at += character.size();
  }
  return text;
}

std::size_t width_of(std::string_view text) {
  std::size_t columns = 0;
  for (std::size_t at = 0; at < text.size();) columns += take_width(text, at);
  return columns;
}

std::string_view beginning_of(std::string_view text, std::size_t columns) {
  std::size_t taken = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    taken += take_width(text, at);
    if (taken > columns) return text.substr(0, begin);
  }
  return text;
}

std::string_view end_of(std::string_view text, std::size_t columns) {
  std::size_t left = width_of(text);
  std::size_t begin = 0;
  while (left > columns) left -= take_width(text, begin);
  return text.substr(begin);
}

std::vector<std::string> wrapped(std::string_view text, std::size_t columns, std::size_t indent) {
  std::vector<std::string> lines;
  while (true) {
    const auto newline = text.find('\n');
    wrap_line(text.substr(0, newline), columns, indent, lines);
    if (newline == text.npos) return lines;
    text.remove_prefix(newline + 1);
  }
}

std::string paragraph(std::string_view sentence, std::size_t columns, std::size_t indent) {
  std::string text;
  for (const std::string& line : wrapped(printable(sentence), columns, indent)) text += line + "\n";
  return text;
}

std::string two_columns(std::string_view name, std::string_view text) {
  std::string result = "  " + std::string(name);
  const std::size_t width = width_of(result);
  bool is_beside = width + 2 <= text_column;
  for (const std::string& line : wrapped(text, help_columns - text_column)) {
    if (!is_beside) result += '\n';
    result += std::string(is_beside ? text_column - width : text_column, ' ') + line;
    is_beside = false;
  }
  return result + "\n";
}

std::size_t terminal_columns() {
  winsize size{};
  if (::isatty(STDOUT_FILENO) == 0) return 0;
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return std::max<std::size_t>(size.ws_col, 40);
}

}  // namespace troupe
