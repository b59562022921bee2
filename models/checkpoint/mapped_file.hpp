#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "runtime/base/result.hpp"

namespace troupe {

/// A file mapped read-only, and open; unmapped and closed on destruction. Movable; the bytes stay
/// in place. If another process truncates the file while it is mapped, reading the lost part ends
/// this process (SIGBUS): do not change checkpoints under a running job.
class MappedFile {
 public:
  /// Errors: not_found, or io with errno's text; both name the path.
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  /// Descriptor of the open file, for reading without the mapping.
  int descriptor() const { return descriptor_; }
  /// The same past the page cache (O_DIRECT); -1 if the file system does not support it.
  int direct_descriptor() const { return direct_descriptor_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  MappedFile() = default;
  void swap(MappedFile& other) noexcept;

  std::filesystem::path path_;
  int descriptor_ = -1;
  int direct_descriptor_ = -1;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace troupe
