#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/checkpoint/dummy_weights.hpp"
#include "models/checkpoint/gguf_checkpoint.hpp"
#include "models/checkpoint/safetensors.hpp"
#include "models/config/quantization.hpp"
#include "parallel/device/tensor.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The source of the weights.
enum class LoadFormat : std::uint8_t {
  safetensors,  ///< or GGUF, if there are none
  dummy,        ///< no files: DummyWeights
};

/// The weights of a Hugging Face folder: model.safetensors, or the shards that
/// model.safetensors.index.json lists, or without these a GGUF file. Files are mapped, so ranks of
/// one node share their pages and a rank reads only what it asks for. Files larger than half of the
/// available memory would not stay in the page cache and may be read past it. Movable; const
/// functions may be called from any thread.
class Checkpoint {
 public:
  /// Calls open(folder) or dummy() with what the folder says of quantisation. Errors: theirs.
  static Result<Checkpoint> open(const std::filesystem::path& folder, LoadFormat format,
                                 DType dtype);

  /// Errors: those of SafetensorsFile::open, GgufCheckpoint::open and load_quantization; not_found
  /// if the folder has no weights or a listed shard is missing; corrupt_data for an index that
  /// lists a tensor its shard does not have.
  static Result<Checkpoint> open(const std::filesystem::path& folder);

  /// Makes a checkpoint without files: weight() returns DummyWeights for every name and shape,
  /// stored as `dtype`, or as codes where `quantization` has MXFP4 of all experts in a tensor; it
  /// lists no names and contains none. Errors: those of DummyWeights::create.
  static Result<Checkpoint> dummy(DType dtype, const QuantizationConfig& quantization = {});

  /// Returns a read-only view of `name` that lives as long as the checkpoint. Errors: not_found
  /// naming the file (the index of a sharded checkpoint) and tensor; unsupported.
  Result<Tensor> tensor(std::string_view name) const;

  /// Like tensor, but returns corrupt_data with file, tensor, expected and found shape unless it
  /// has `shape` and is f32, bf16 or f16.
  Result<Tensor> weight(std::string_view name, const Shape& shape) const;
  /// Like weight, with the tensor's place in the file if there is one. It may also be of the
  /// WeightFormat that the config gives its module, whose companions must be there then.
  Result<StoredTensor> stored_weight(std::string_view name, const Shape& shape) const;
  /// Returns corrupt_data with file, tensor and place if `weight`, the stored_weight of that name,
  /// has scales that are not finite. Reads all of them.
  Result<void> check_scales(std::string_view name, const StoredTensor& weight) const;

  /// Sees the name of each weight that is asked for, and may return numbers that are read in its
  /// place: a tensor of the same shape that outlives what is loaded from it.
  using Substitute = std::function<std::optional<Tensor>(std::string_view name)>;
  /// Null: none. Not while another thread reads.
  void set_substitute(Substitute substitute) { substitute_ = std::move(substitute); }

  bool contains(std::string_view name) const {
    return gguf_ ? gguf_->contains(name) : place_.contains(name);
  }
  /// The file that holds a tensor, and is there as long as the checkpoint; null if there is none,
  /// as of GGUF, whose names() are not listed either.
  const SafetensorsFile* file_with(std::string_view name) const;
  std::vector<std::string> names() const;
  const std::filesystem::path& folder() const { return folder_; }
  /// How matrices are stored in low precision.
  const QuantizationConfig& quantization() const { return quantization_; }

 private:
  void judge_size();
  Result<StoredTensor> dummy_weight(std::string_view name, const Shape& shape) const;
  /// The matrix of that name and shape in the format; none if there are no codes of it.
  Result<std::optional<StoredTensor>> coded_weight(std::string_view name, const Shape& shape,
                                                   const WeightScheme& scheme) const;
  /// A companion of `matrix`, which is there under that name. `types`: those it may have.
  Result<StoredTensor> companion(std::string_view name, const Shape& shape,
                                 std::span<const std::string_view> types) const;
  Result<void> find_companions(std::string_view name, const Shape& shape,
                               StoredTensor& tensor) const;
  Result<const SafetensorsFile*> file_of(std::string_view name) const;
  Result<void> open_shards(const std::filesystem::path& index);

  std::filesystem::path folder_;
  std::filesystem::path listing_;  ///< the file that errors name if a tensor is missing
  QuantizationConfig quantization_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t, std::less<>> place_;  ///< tensor -> file
  bool exceeds_cache_ = false;
  std::optional<GgufCheckpoint> gguf_;  ///< used instead of safetensors
  std::optional<DummyWeights> dummy_;   ///< used instead of files
  Substitute substitute_;
};

}  // namespace troupe
