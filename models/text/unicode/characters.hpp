#pragma once

#include <string>
#include <string_view>

namespace troupe::text {

/// Unicode White_Space: 25 code points, among them U+0085, but not U+001C-1F, U+200B or U+FEFF.
bool is_white_space(char32_t code_point);

/// True for Python's str.isspace: White_Space and U+001C-1F.
bool is_python_space(char32_t code_point);

/// Alphabetic, a mark, decimal digit, connector or joiner: the `\w` of Rust's regex library (UTS
/// #18, annex C), with which the tokenizers library finds the borders of words.
bool is_word_character(char32_t code_point);

/// Unicode normalisation forms (UAX #15) with utf8proc's tables.
enum class NormalForm { nfc, nfd, nfkc, nfkd };

/// Returns `text`, which is well-formed UTF-8, in normal form `form`. Linear (times log) in its
/// length for any content; text without a code point above U+02FF is copied where the form allows
/// it.
std::string normalize(std::string_view text, NormalForm form);

}  // namespace troupe::text
