#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "runtime/base/result.hpp"

namespace troupe {

/// JSON values nested deeper than this are refused.
inline constexpr int max_json_depth = 64;

/// Parses one JSON text. Errors: corrupt_data, whose message gives the byte (from 1) and the
/// reason; `*invalid_utf8` says if that is invalid UTF-8.
Result<nlohmann::json> parse_json(std::string_view text, bool* invalid_utf8);

/// Describes a value for messages: `"two"`, `3.7`, `null`, `a list`, `an object`; short.
std::string describe_json(const nlohmann::json& value);

/// Returns the value as an integer: also one written 8.0, but not a fraction, text or boolean.
/// Values outside of 64 bits saturate.
std::optional<std::int64_t> json_integer(const nlohmann::json& value);

}  // namespace troupe
