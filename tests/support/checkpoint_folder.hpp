#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "models/checkpoint/checkpoint.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe::golden {

using tests::TemporaryFolder;

/// The bytes of a file; empty if it cannot be read.
std::string file_bytes(const std::filesystem::path& path);

/// A tensor to be written.
struct RawTensor {
  std::string dtype;  ///< as in the file, e.g. "BF16"
  std::vector<std::int64_t> shape;
  std::string bytes;
};

/// The bytes of a safetensors file with these tensors.
std::string safetensors_bytes(const std::map<std::string, RawTensor>& tensors);

/// The bytes of a file with this header and data, valid or not.
std::string safetensors_bytes(std::string_view header, std::string_view data);

/// All tensors of a checkpoint, to be changed and written again.
std::map<std::string, RawTensor> read_all(const Checkpoint& checkpoint);

}  // namespace troupe::golden
