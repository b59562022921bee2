#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The number of bytes of the UTF-8 character at `at`, which is in the text; 0 if there is none
/// (RFC 3629).
std::size_t utf8_bytes(std::string_view text, std::size_t at);

/// Any bytes, a path for example, as one line for a terminal: invalid UTF-8, control characters,
/// ends of lines and what changes the direction of the text around it become '?'. The functions
/// below take such text.
std::string printable(std::string_view bytes);

/// The columns that `text` takes (see character_width).
std::size_t width_of(std::string_view text);

/// The longest prefix, or suffix, of `text` that takes at most `columns`.
std::string_view beginning_of(std::string_view text, std::size_t columns);
std::string_view end_of(std::string_view text, std::size_t columns);

/// Breaks `text` between words into lines of at most `columns`, if that is not 0. A longer word has
/// a line of its own. Newlines of `text` stay. The lines that begin within a line of `text` are
/// indented by `indent`.
std::vector<std::string> wrapped(std::string_view text, std::size_t columns,
                                 std::size_t indent = 0);

/// The same of any bytes, made printable, with a newline behind each line.
std::string paragraph(std::string_view sentence, std::size_t columns, std::size_t indent = 0);

/// "  NAME   the text", the text wrapped within 80 columns, for a program's help. A long name has a
/// line of its own. Each line ends with a newline.
std::string two_columns(std::string_view name, std::string_view text);

/// The width of the terminal that stdout is; 0 if it is none.
std::size_t terminal_columns();

}  // namespace troupe
