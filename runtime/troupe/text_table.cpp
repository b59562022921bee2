#include "runtime/troupe/text_table.hpp"

#include <algorithm>

#include <sys/ioctl.h>
#include <unistd.h>

namespace troupe {
namespace {

constexpr std::size_t gap = 2;
constexpr std::size_t least_cut = 8;  ///< no cell is cut to less

/// Characters, each taken to be as wide as others.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string cut(const std::string& text, std::size_t width) {
  if (width_of(text) <= width) return text;
  std::string result;
  std::size_t taken = 0;
  for (std::size_t at = 0; at < text.size() && taken + 3 < width; ++taken) {
    const std::size_t bytes = std::max<std::size_t>(utf8_bytes(text, at), 1);
    result += text.substr(at, bytes);
    at += bytes;
  }
  return result + "...";
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
    const auto lead = static_cast<unsigned char>(bytes[at]);
    // C1 controls are U+0080 to U+009F: c2 80 to c2 9f.
    const bool is_control =
        lead < 0x20 || lead == 0x7f ||
        (count == 2 && lead == 0xc2 && static_cast<unsigned char>(bytes[at + 1]) < 0xa0);
    if (count == 0 || is_control) {
      text += '?';
    } else {
      text += bytes.substr(at, count);
    }
    at += std::max<std::size_t>(count, 1);
  }
  return text;
}

void TextTable::add(std::vector<std::string> row) {
  for (std::string& cell : row) cell = printable(cell);
  rows_.push_back(std::move(row));
}

std::string TextTable::text(std::size_t columns) const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  const auto total = [&] {
    std::size_t sum = gap * (widths.size() - 1);
    for (const std::size_t width : widths) sum += width;
    return sum;
  };
  while (columns != 0 && total() > columns) {
    const auto widest = std::ranges::max_element(widths);
    if (*widest <= least_cut) break;
    --*widest;
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string cell = cut(row[i], widths[i]);
      line += cell;
      if (i + 1 < row.size()) line += std::string(widths[i] - width_of(cell) + gap, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string paragraph(std::string_view sentence, std::size_t columns, std::size_t indent) {
  std::string text, line;
  std::string rest = printable(sentence);
  while (!rest.empty()) {
    const std::string word = rest.substr(0, rest.find(' '));
    rest.erase(0, std::min(word.size() + 1, rest.size()));
    if (columns != 0 && line.find_first_not_of(' ') != line.npos &&
        width_of(line) + 1 + width_of(word) > columns) {
      text += line + "\n";
      line = std::string(indent, ' ');
    }
    if (line.find_first_not_of(' ') != line.npos) line += ' ';
    line += word;
  }
  return text + line + "\n";
}

std::size_t terminal_columns() {
  winsize size{};
  if (::isatty(STDOUT_FILENO) == 0) return 0;
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return std::max<std::size_t>(size.ws_col, 40);
}

}  // namespace troupe
