#pragma once

#include <filesystem>

#include <nlohmann/json_fwd.hpp>

#include "runtime/base/result.hpp"

namespace troupe::text {

/// Sequences of steps (of normalizers, pre-tokenizers, ...) may lie in each other this deep.
inline constexpr int deepest_sequence = 16;

/// corrupt_data if a sequence lies in `depth` others already.
Result<> check_sequence_depth(int depth);

/// The JSON value in file `path`. Errors: not_found, io; corrupt_data with the place.
Result<nlohmann::json> read_json_file(const std::filesystem::path& path);

/// The bytes of file `path`. Errors: not_found, io.
Result<std::string> read_text_file(const std::filesystem::path& path);

}  // namespace troupe::text
