#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "runtime/base/result.hpp"

namespace troupe {

/// The nesting limit of a checkpoint's JSON, so that reading it by recursion is safe. Published
/// files need fewer than ten levels.
inline constexpr int max_checkpoint_json_depth = 64;

/// The most values in a checkpoint's JSON. A parsed value takes up to about 200 bytes; the largest
/// published tokenizers have 1.5 million.
inline constexpr std::size_t max_checkpoint_json_values = 4'000'000;

/// Reads a small text file; not_found names the file, and a file above `limit_bytes` is
/// corrupt_data (a config of gigabytes is a mistake).
Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t limit_bytes);

/// Checks the two limits above in one pass over `text`, without parsing it. Errors: corrupt_data
/// with `where`, line and column of the excess.
Result<void> check_json_limits(std::string_view text, std::string_view where);

/// Parses `text` as JSON within these limits and requires an object at the top. A syntax error is
/// corrupt_data with `where`, line and column.
Result<nlohmann::json> parse_json_object(std::string_view text, std::string_view where);

/// Reads the object in a file of at most 64 MiB.
Result<nlohmann::json> read_json_object(const std::filesystem::path& path);

}  // namespace troupe
