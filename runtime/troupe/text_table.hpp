#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The number of bytes of the UTF-8 character at `at`, which is in the text; 0 if there is none
/// (RFC 3629).
std::size_t utf8_bytes(std::string_view text, std::size_t at);

/// Any bytes as one line for a terminal: control characters and invalid UTF-8 become '?'.
std::string printable(std::string_view bytes);

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

/// The width of the terminal that stdout is; 0 if it is none.
std::size_t terminal_columns();

}  // namespace troupe
