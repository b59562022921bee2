#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe {

/// The number of bytes of the UTF-8 character at `at`, which is in the text; 0 if there is none
/// (RFC 3629).
std::size_t utf8_bytes(std::string_view text, std::size_t at);

/// Any bytes as one line for a terminal: invalid UTF-8, control characters, ends of lines and what
/// changes the direction of the text around it become '?'.
std::string printable(std::string_view bytes);

/// The columns that printable text takes on a terminal: two for wide characters (East Asian Width
/// W and F, UAX 11), none for combining ones, else one.
std::size_t width_of(std::string_view text);

/// The longest beginning of printable text that takes at most `columns`.
std::string_view cut_to(std::string_view text, std::size_t columns);

/// The width of the terminal that stdout is; 0 if it is none.
std::size_t terminal_columns();

}  // namespace troupe
