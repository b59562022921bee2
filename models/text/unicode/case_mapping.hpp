#pragma once

#include <string>
#include <string_view>

namespace troupe::text {

// Unicode's full case mapping (SpecialCasing.txt without its language-dependent rows), in which one
// character can become several, and the character classes behind Python's str.isalpha() and its
// kin. Texts are well-formed UTF-8.

/// "ß" becomes "SS".
std::string to_upper(std::string_view text);

/// "İ" becomes "i" with U+0307; "Σ" at the end of a word becomes "ς".
std::string to_lower(std::string_view text);

/// The first character in title case, the rest in lower case: Python's str.capitalize().
std::string capitalize(std::string_view text);

/// Capitalises words, which begin after a character without case: Python's str.title().
std::string to_title(std::string_view text);

/// Swaps upper and lower case: Python's str.swapcase().
std::string swap_case(std::string_view text);

bool is_upper(char32_t code_point);  ///< Uppercase
bool is_lower(char32_t code_point);  ///< Lowercase
bool is_title(char32_t code_point);  ///< Lt
bool is_alpha(char32_t code_point);
bool is_decimal(char32_t code_point);
bool is_digit(char32_t code_point);    ///< is_decimal, superscripts, circled digits and the like
bool is_numeric(char32_t code_point);  ///< is_digit, fractions, Roman numerals; not CJK numerals
bool is_alnum(char32_t code_point);    ///< is_alpha or is_numeric

/// True if Python's repr() prints it unescaped.
bool is_printable(char32_t code_point);

}  // namespace troupe::text
