#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "runtime/base/result.hpp"

namespace troupe {

/// Arrays and objects of a checkpoint's JSON may be nested this deep, so that reading them by
/// recursion is safe. Published files need fewer than ten levels.
inline constexpr int max_checkpoint_json_depth = 64;

/// The values that a checkpoint's JSON may hold. A parsed value takes up to about 200 bytes; the
/// largest published tokenizers have 1.5 million.
inline constexpr std::size_t max_checkpoint_json_values = 4'000'000;

/// The bytes of a small text file; not_found names the file, and a file above `limit_bytes` is
/// corrupt_data (a config of gigabytes is a mistake, not something to read).
Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t limit_bytes);

/// Checks the two limits above in one pass over `text`, without parsing it. corrupt_data with
/// `where`, line and column of what exceeds them.
Result<void> check_json_limits(std::string_view text, std::string_view where);

/// Parses `text` as JSON within these limits and requires an object at the top. A syntax error is
/// corrupt_data with `where`, line and column.
Result<nlohmann::json> parse_json_object(std::string_view text, std::string_view where);

/// The object in a file of at most 64 MiB.
Result<nlohmann::json> read_json_object(const std::filesystem::path& path);

}  // namespace troupe
