#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::text {

/// U+FFFD in UTF-8, the replacement for bytes that form no character.
inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";

/// Returns the index of the first byte that is not part of well-formed UTF-8 (no surrogates, no
/// overlong forms, nothing above U+10FFFF), or nullopt.
std::optional<std::size_t> find_invalid_utf8(std::string_view bytes);

/// True if find_invalid_utf8 finds nothing.
bool is_valid_utf8(std::string_view bytes);

/// Appends `bytes` to `out` as UTF-8: each maximal ill-formed part becomes one U+FFFD (Unicode 15,
/// section 3.9, the practice that Rust's String::from_utf8_lossy follows). Returns the number of
/// bytes used: all of them if `is_end`; otherwise a character cut off at the end is left for the
/// caller to pass again with its continuation.
std::size_t append_lossy(std::string_view bytes, bool is_end, std::string& out);

/// The bytes of the first character of `bytes`, which are not empty, or of the ill-formed part that
/// append_lossy replaces by one U+FFFD.
std::size_t first_character_bytes(std::string_view bytes);

/// Returns the code point at `position` of well-formed `text`; moves `position` after it.
char32_t next_code_point(std::string_view text, std::size_t& position);

/// Appends `code_point` in UTF-8.
void append_code_point(char32_t code_point, std::string& out);

/// Converts well-formed `text` to code points, and back.
std::u32string to_code_points(std::string_view text);
std::string to_utf8(std::u32string_view code_points);

/// The number of code points in well-formed `text`.
std::size_t count_code_points(std::string_view text);

}  // namespace troupe::text
