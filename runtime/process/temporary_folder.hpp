#pragma once

#include <filesystem>
#include <string_view>
#include <utility>

#include "runtime/base/result.hpp"

namespace troupe {

/// Makes a new folder for temporary files (under TMPDIR, else /tmp) and removes it with its
/// contents.
class TemporaryFolder {
 public:
  /// Its name begins with `name`. Errors: io with the path that could not be made.
  static Result<TemporaryFolder> create(std::string_view name);

  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();

  const std::filesystem::path& path() const { return path_; }
  /// Keeps the folder after destruction; returns its path.
  std::filesystem::path keep() { return std::exchange(path_, {}); }

 private:
  explicit TemporaryFolder(std::filesystem::path path) : path_(std::move(path)) {}

  std::filesystem::path path_;
};

}  // namespace troupe
