#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "runtime/base/result.hpp"

namespace troupe {

/// The bytes of a small text file; not_found names the file, and a file above `limit_bytes` is
/// corrupt_data (a config of gigabytes is a mistake, not something to read).
Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t limit_bytes);

/// Parses `text` as JSON and requires an object at the top. A syntax error is corrupt_data with
/// `where`, line and column.
Result<nlohmann::json> parse_json_object(std::string_view text, std::string_view where);

/// Both: the object in a file.
Result<nlohmann::json> read_json_object(const std::filesystem::path& path);

}  // namespace troupe
