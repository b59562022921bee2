#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "runtime/base/result.hpp"

namespace troupe {

/// A file mapped read-only; unmapped when destroyed. Movable, the bytes stay where they are. If
/// another process cuts the file short while it is mapped, reading the lost part ends this process
/// (SIGBUS): checkpoints are not to be changed under a running job.
class MappedFile {
 public:
  /// Errors: not_found, or io with errno's text; both name the path.
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  MappedFile() = default;

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace troupe
