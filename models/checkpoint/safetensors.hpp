#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/checkpoint/mapped_file.hpp"
#include "models/ops/stored_matrix.hpp"
#include "parallel/device/tensor.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// One file in the safetensors format: 8 bytes of header length (little endian), a JSON object
/// {name: {dtype, shape, data_offsets}}, then the tensors' bytes without gaps. Opening checks all
/// of that and reads no tensor; views point into the mapping and live as long as the object, even
/// if it is moved.
class SafetensorsFile {
 public:
  /// Errors name the file, and the tensor if one is concerned: not_found, io, and corrupt_data for
  /// a header that is longer than the file or no JSON, for duplicate names, unknown dtypes, offsets
  /// outside the file or not of the size of dtype x shape, overlapping tensors and bytes that
  /// belong to none.
  static Result<SafetensorsFile> open(const std::filesystem::path& path);

  /// Returns a read-only view of `name`. Its address is a multiple of the element size only if the
  /// writer padded the header, as all current ones do; copy_rows handles both. Errors: not_found;
  /// unsupported for a dtype or rank that Tensor does not have.
  Result<Tensor> tensor(std::string_view name) const;

  /// Like tensor, with its place in the file.
  Result<StoredTensor> stored(std::string_view name) const;
  /// The tensor's type as the file calls it, e.g. F8_E4M3; "" if there is no such tensor.
  std::string_view type_of(std::string_view name) const;

  /// A tensor of any type as it is in the file; no bytes if there is none.
  struct Raw {
    std::string_view type;
    std::span<const std::int64_t> extents;
    std::span<const std::byte> bytes;
  };
  Raw raw(std::string_view name) const;

  bool contains(std::string_view name) const { return entries_.contains(name); }
  std::vector<std::string> names() const;
  std::uint64_t bytes() const { return file_.bytes().size(); }  ///< of the whole file
  const std::filesystem::path& path() const { return file_.path(); }

  /// A tensor's entry in the header.
  struct Entry {
    std::string dtype_name;  ///< as in the file: "BF16", ...
    std::size_t element_size = 0;
    std::vector<std::int64_t> extents;
    std::size_t begin = 0;  ///< of its bytes in the file
    std::size_t end = 0;
  };

 private:
  explicit SafetensorsFile(MappedFile file) : file_(std::move(file)) {}

  MappedFile file_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace troupe
