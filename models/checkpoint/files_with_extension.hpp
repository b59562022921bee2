#pragma once

#include <filesystem>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace troupe {

/// The files of a folder that have one of these extensions (".safetensors"), sorted; none if the
/// folder cannot be read.
std::vector<std::filesystem::path> files_with_extension(
    const std::filesystem::path& folder, std::initializer_list<std::string_view> extensions);

}  // namespace troupe
