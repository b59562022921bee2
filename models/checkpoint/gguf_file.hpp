#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "models/checkpoint/mapped_file.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// One file in the format GGUF, version 2 or 3, little endian (ggml/docs/gguf.md): keys with
/// values, the tensors' names, types and extents, then their bytes. Opening checks all of that and
/// reads no tensor; views point into the mapping and live as long as the object, even if it is
/// moved.
class GgufFile {
 public:
  /// Errors name the file, and the key or tensor if one is concerned: not_found, io; corrupt_data
  /// for a header that ends early or is none, lengths beyond the file, keys or tensors that are
  /// there twice, and tensors outside the file; unsupported for another version or byte order.
  static Result<GgufFile> open(const std::filesystem::path& path);

  struct TensorInfo {
    std::uint32_t type = 0;
    std::vector<std::int64_t> extents;  ///< the last one's elements lie side by side
    std::size_t begin = 0;              ///< of its bytes in the file
  };

  /// Null if there is none.
  const TensorInfo* find(std::string_view name) const;
  const std::byte* data() const { return file_.bytes().data(); }
  const std::filesystem::path& path() const { return file_.path(); }

  /// A key's value, if it is there and is a text or a whole number, not a list.
  std::optional<std::string> text(std::string_view key) const;
  std::optional<std::int64_t> integer(std::string_view key) const;

 private:
  class Reader;
  using Value = std::variant<std::monostate, std::int64_t, std::string>;

  explicit GgufFile(MappedFile file) : file_(std::move(file)) {}

  MappedFile file_;
  std::map<std::string, Value, std::less<>> values_;
  std::map<std::string, TensorInfo, std::less<>> tensors_;
};

}  // namespace troupe
