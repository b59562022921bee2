#include "runtime/troupe/text_table.hpp"

#include <algorithm>

#include "runtime/base/terminal_text.hpp"

namespace troupe {
namespace {

constexpr std::size_t gap = 2;
constexpr std::size_t least_cut = 8;  ///< no cell is cut to less

std::string cut(const std::string& text, std::size_t width) {
  constexpr std::string_view end = "...";
  if (width_of(text) <= width) return text;
  return std::string(beginning_of(text, width - end.size())).append(end);
}

}  // namespace

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

}  // namespace troupe
