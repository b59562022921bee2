#pragma once

#include <cstddef>
#include <string>
#include <vector>

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

}  // namespace troupe
