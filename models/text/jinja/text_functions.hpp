#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/text/jinja/value.hpp"

namespace troupe::jinja {

// String operations shared by filters and Python's methods.

/// `text` without the characters of `characters` (whitespace if null or none) at its ends.
std::string strip(std::string_view text, const Value* characters, bool left, bool right);

/// str.replace(): at most `most` times, if that is not negative.
std::string replaced(std::string_view text, std::string_view from, std::string_view to,
                     std::int64_t most);

/// str.splitlines(): without their ends unless `keep_ends`.
std::vector<std::string_view> lines_of(std::string_view text, bool keep_ends);

/// str.center(), ljust() and rjust() for align '^', '<' and '>'.
std::string padded(std::string_view text, std::int64_t width, char32_t fill, char align);

/// str.isupper() or str.islower(): there is a letter of that case and none of the other.
bool has_case(std::string_view text, bool upper);

/// int(text, base): none if it is not an integer. Throws for more than 64 bits.
std::optional<std::int64_t> parse_integer(std::string_view text, std::int64_t base);

/// float(text).
std::optional<double> parse_float(std::string_view text);

}  // namespace troupe::jinja
