#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::text {

/// U+FFFD in UTF-8, which stands for bytes that are no character.
inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";

/// The index of the first byte that is not part of well-formed UTF-8 (no surrogates, no overlong
/// forms, nothing above U+10FFFF), or nullopt.
std::optional<std::size_t> find_invalid_utf8(std::string_view bytes);

/// Whether find_invalid_utf8 finds nothing.
bool is_valid_utf8(std::string_view bytes);

/// Appends `bytes` to `out` as UTF-8: each maximal ill-formed part becomes one U+FFFD (Unicode 15,
/// section 3.9, the practice that Rust's String::from_utf8_lossy follows). Returns how many bytes
/// were used: all of them if `is_end`; else a character cut at the end stays behind for the caller
/// to offer again with its continuation.
std::size_t append_lossy(std::string_view bytes, bool is_end, std::string& out);

/// The bytes of the first character of `bytes`, which are not empty, or of the ill-formed part that
/// append_lossy makes one U+FFFD of.
std::size_t first_character_bytes(std::string_view bytes);

/// The code point at `position` of well-formed `text`; moves `position` behind it.
char32_t next_code_point(std::string_view text, std::size_t& position);

/// Appends `code_point` in UTF-8.
void append_code_point(char32_t code_point, std::string& out);

/// The code points of well-formed `text`, and back.
std::u32string to_code_points(std::string_view text);
std::string to_utf8(std::u32string_view code_points);

/// The number of code points in well-formed `text`.
std::size_t count_code_points(std::string_view text);

}  // namespace troupe::text
