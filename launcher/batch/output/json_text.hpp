#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// Appends `text` as a JSON string with its quotes. Control characters, quote and backslash are
/// escaped, U+2028 and U+2029 too (some line readers cut there); a byte that is not part of valid
/// UTF-8 becomes U+FFFD.
void append_json_string(std::string& out, std::string_view text);

/// Appends the shortest decimal that reads back as the same float. JSON has no infinities: below
/// -9999, and for NaN, -9999 is written, as vLLM does for log-probabilities.
void append_json_logprob(std::string& out, float logprob);

/// The index of the first byte that is not valid UTF-8 (RFC 3629: no surrogates, no overlong
/// forms), or nullopt.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

/// Code points of valid UTF-8.
std::size_t count_code_points(std::string_view text);

}  // namespace troupe
