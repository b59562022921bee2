#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "parallel/device/tensor.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// A tensor for a checkpoint; dtypes and shapes are those of Tensor.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// Writes safetensors files of about `shard_bytes` each into the existing `folder`, several
/// concurrently, and finally model.safetensors.index.json, which lists them. Existing files are
/// replaced. Errors: io with the path.
Result<void> write_checkpoint(const std::filesystem::path& folder,
                              std::span<const NamedTensor> tensors, std::uint64_t shard_bytes);

}  // namespace troupe
