#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Any bytes, a path for example, as one line for a terminal: control characters and invalid UTF-8
/// become U+FFFD. The other functions here take such text.
std::string on_one_line(std::string_view bytes);

/// Returns the columns that `line` takes: one for most characters, two for wide ones, none for
/// combining ones.
std::size_t columns_of(std::string_view line);

/// The longest prefix, or suffix, of `line` that takes at most `columns`.
std::string_view beginning_of(std::string_view line, std::size_t columns);
std::string_view end_of(std::string_view line, std::size_t columns);

/// Wraps `text` into lines of at most `columns`, broken between words; a longer word gets its own
/// line. Newlines of `text` stay.
std::vector<std::string> wrapped(std::string_view text, std::size_t columns);

}  // namespace troupe
