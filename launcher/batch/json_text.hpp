#pragma once

#include <string>
#include <string_view>

namespace troupe {

/// Appends `text` as a JSON string with its quotes. Control characters, quote and backslash are
/// escaped, U+2028 and U+2029 too (some line readers split there); invalid UTF-8 becomes U+FFFD, as
/// in text::append_lossy.
void append_json_string(std::string& out, std::string_view text);

/// Appends the shortest decimal that reads back as the same float. JSON has no infinities: below
/// -9999, and for NaN, -9999 is written, as vLLM does for log-probabilities.
void append_json_logprob(std::string& out, float logprob);

}  // namespace troupe
