#include "models/checkpoint/files_with_extension.hpp"

#include <algorithm>
#include <string>
#include <system_error>

namespace troupe {

std::vector<std::filesystem::path> files_with_extension(
    const std::filesystem::path& folder, std::initializer_list<std::string_view> extensions) {
  std::vector<std::filesystem::path> files;
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator(folder, problem)) {
    const std::string extension = entry.path().extension();
    if (std::ranges::find(extensions, extension) != extensions.end()) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace troupe
