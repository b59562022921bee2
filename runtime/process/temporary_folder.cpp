#include "runtime/process/temporary_folder.hpp"

#include <cerrno>
#include <cstdlib>
#include <system_error>

namespace troupe {

Result<TemporaryFolder> TemporaryFolder::create(std::string_view name) {
  std::error_code problem;
  const auto parent = std::filesystem::temp_directory_path(problem);
  if (problem) {
    return fail(ErrorCode::io, "there is no folder for temporary files: {}", problem.message());
  }
  std::string path = (parent / name).string() + ".XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) {
    return fail_errno(errno, fmt::format("cannot make the folder {}", path));
  }
  return TemporaryFolder(std::move(path));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace troupe
