#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe {

/// A tensor of a safetensors file: what its header says of it.
struct TensorSpec {
  std::string name;
  std::string type;  ///< as the file calls it: "F8_E4M3"
  std::vector<std::int64_t> extents;
  std::uint64_t bytes = 0;
};

/// Writes one safetensors file tensor by tensor, under a name of its own that becomes the final one
/// when all is on the disk: a file of that name is always whole.
class ShardWriter {
 public:
  /// Begins `path`, whose tensors are `specs` in this order. Errors: io with the path.
  static Result<ShardWriter> create(const std::filesystem::path& path,
                                    std::span<const TensorSpec> specs);
  ShardWriter(ShardWriter&& other) noexcept;
  ShardWriter& operator=(ShardWriter&&) = delete;
  ~ShardWriter();  ///< without finish(), the file goes

  /// Appends the next tensor's bytes, which may come in several parts. Errors: io.
  Result<void> append(std::span<const std::byte> bytes);
  /// Syncs the file and gives it its name. Errors: io; internal if bytes are missing.
  Result<void> finish();

 private:
  ShardWriter(std::filesystem::path path, int file, std::uint64_t bytes)
      : path_(std::move(path)), file_(file), missing_(bytes) {}
  std::filesystem::path unfinished() const;

  std::filesystem::path path_;
  int file_ = -1;
  std::uint64_t missing_ = 0;
};

}  // namespace troupe
