#pragma once

#include <filesystem>

#include <nlohmann/json_fwd.hpp>

#include "runtime/base/result.hpp"

namespace troupe::text {

/// The JSON value in file `path`. Errors: not_found, io; corrupt_data with the place.
Result<nlohmann::json> read_json_file(const std::filesystem::path& path);

/// The bytes of file `path`. Errors: not_found, io.
Result<std::string> read_text_file(const std::filesystem::path& path);

}  // namespace troupe::text
