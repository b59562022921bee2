#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Any bytes, a path for example, as one line that a terminal shows: control characters and what is
/// no UTF-8 become U+FFFD. The other functions here take such text.
std::string on_one_line(std::string_view bytes);

/// How many columns `line` takes: one for most characters, two for wide ones, none for those that
/// combine with the one before.
std::size_t columns_of(std::string_view line);

/// The longest beginning, or end, of `line` that takes at most `columns`.
std::string_view beginning_of(std::string_view line, std::size_t columns);
std::string_view end_of(std::string_view line, std::size_t columns);

/// `text` in lines of at most `columns`, broken between words; a longer word has a line of its own.
/// Newlines of `text` stay.
std::vector<std::string> wrapped(std::string_view text, std::size_t columns);

}  // namespace troupe
