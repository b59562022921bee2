#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/checkpoint/gguf_file.hpp"
#include "models/ops/stored_matrix.hpp"

namespace troupe {

/// The weights of a folder's GGUF file, or of its parts NAME-00001-of-0000N.gguf, by the names that
/// Hugging Face's checkpoints have. Of the architectures llama (also Mistral's and Mixtral's),
/// qwen2, qwen3 and qwen3moe, whose tensors differ from those in names, in the order of the rows of
/// llama's queries and keys and their biases, and in that all experts of a layer are one.
class GgufCheckpoint {
 public:
  /// None if the folder has no GGUF file. Errors: those of GgufFile::open; corrupt_data for several
  /// files that are not all the parts of one; unsupported for another architecture.
  static Result<std::optional<GgufCheckpoint>> open(const std::filesystem::path& folder);

  bool contains(std::string_view name) const { return find(name).has_value(); }
  /// Errors: not_found; unsupported for a type that is not read; corrupt_data for another shape.
  Result<StoredTensor> stored_weight(std::string_view name, const Shape& shape) const;
  /// The first file.
  const std::filesystem::path& path() const { return files_.front().path(); }

 private:
  struct Place {
    const GgufFile* file = nullptr;
    const GgufFile::TensorInfo* info = nullptr;
    std::string name;          ///< in the file
    std::int64_t expert = -1;  ///< of the tensor; -1: it is not of experts
  };
  std::optional<Place> find(std::string_view name) const;
  /// The rows of a head of a matrix whose rows GGUF interleaves; 0: of others.
  Result<std::int64_t> interleaved_rows(const Place& place, std::int64_t rows) const;

  std::string architecture_;
  std::vector<GgufFile> files_;
};

}  // namespace troupe
