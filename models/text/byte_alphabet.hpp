#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace troupe::text {

/// The printable character that stands for `byte` in the tokens of a byte-level vocabulary:
/// printable Latin-1 stands for itself, the other 68 bytes for U+0100 onwards (GPT-2's
/// bytes_to_unicode).
char32_t byte_to_character(unsigned char byte);

/// The bytes that the characters of `token` stand for; nullopt if one stands for none.
std::optional<std::string> bytes_of_token(std::string_view token);

}  // namespace troupe::text
