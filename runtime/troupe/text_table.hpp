#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/troupe/printable.hpp"

namespace troupe {

/// Rows of cells under a heading, in columns of equal width. Cells are made printable.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> heading) { add(std::move(heading)); }
  void add(std::vector<std::string> row);

  /// The lines, each with a newline. Where they would not fit `columns`, the widest cells are cut,
  /// with "..." at their ends; 0: they may be of any width.
  std::string text(std::size_t columns = 0) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// Breaks a sentence between words into lines of at most `columns`, if that is not 0. All but the
/// first are indented by `indent`. A longer word has a line of its own. Each ends with a newline.
std::string paragraph(std::string_view sentence, std::size_t columns, std::size_t indent = 0);

}  // namespace troupe
