#include "models/checkpoint/checkpoint.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "models/json/json_file.hpp"
#include "runtime/base/available_memory.hpp"

namespace troupe {

namespace {

constexpr std::string_view single_name = "model.safetensors";
constexpr std::string_view index_name = "model.safetensors.index.json";

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& folder, LoadFormat format,
                                    DType dtype) {
  return format == LoadFormat::dummy ? dummy(dtype) : open(folder);
}

Result<Checkpoint> Checkpoint::dummy(DType dtype) {
  Checkpoint checkpoint;
  checkpoint.listing_ = "dummy weights";
  TROUPE_TRY(checkpoint.dummy_, DummyWeights::create(dtype));
  return checkpoint;
}

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& folder) {
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  std::error_code status;
  if (const auto index = folder / index_name; std::filesystem::exists(index, status)) {
    TROUPE_CHECK(checkpoint.open_shards(index));
    checkpoint.judge_size();
    return checkpoint;
  }
  checkpoint.listing_ = folder / single_name;
  if (!std::filesystem::exists(checkpoint.listing_, status)) {
    return fail(ErrorCode::not_found, "{}: no weights: expected {} or {}", folder.string(),
                single_name, index_name);
  }
  TROUPE_TRY(auto file, SafetensorsFile::open(checkpoint.listing_));
  for (std::string& name : file.names()) checkpoint.place_.emplace(std::move(name), 0);
  checkpoint.files_.push_back(std::move(file));
  checkpoint.judge_size();
  return checkpoint;
}

void Checkpoint::judge_size() {
  std::uint64_t bytes = 0;
  for (const SafetensorsFile& file : files_) bytes += file.bytes();
  const auto available = available_memory_bytes();
  exceeds_cache_ = available && bytes > *available / 2;
}

Result<void> Checkpoint::open_shards(const std::filesystem::path& index) {
  listing_ = index;
  TROUPE_TRY(const nlohmann::json object, read_json_object(index));
  const auto map = object.find("weight_map");
  if (map == object.end() || !map->is_object()) {
    return fail(ErrorCode::corrupt_data, "{}: missing key weight_map", index.string());
  }
  std::map<std::string, std::size_t> opened;
  for (const auto& [tensor, shard] : map->items()) {
    const std::string name = shard.is_string() ? shard.get<std::string>() : "";
    // A shard must be a file in the index's folder; a path elsewhere is refused.
    if (name.empty() || std::filesystem::path(name).filename() != name) {
      return fail(ErrorCode::corrupt_data, "{}: tensor {}: expected the name of a file beside it",
                  index.string(), tensor);
    }
    const auto [entry, first] = opened.emplace(name, files_.size());
    if (first) {
      TROUPE_TRY(auto file, SafetensorsFile::open(folder_ / name));
      files_.push_back(std::move(file));
    }
    if (!files_[entry->second].contains(tensor)) {
      return fail(ErrorCode::corrupt_data, "{}: tensor {} is listed in {} but not there",
                  index.string(), tensor, name);
    }
    place_.emplace(tensor, entry->second);
  }
  return {};
}

Result<const SafetensorsFile*> Checkpoint::file_of(std::string_view name) const {
  const auto found = place_.find(name);
  if (found == place_.end()) {
    return fail(ErrorCode::not_found, "{}: missing tensor {}", listing_.string(), name);
  }
  return &files_[found->second];
}

Result<Tensor> Checkpoint::tensor(std::string_view name) const {
  TROUPE_TRY(const SafetensorsFile* file, file_of(name));
  return file->tensor(name);
}

Result<Tensor> Checkpoint::weight(std::string_view name, const Shape& shape) const {
  TROUPE_TRY(const StoredTensor found, stored_weight(name, shape));
  if (found.format == nullptr) return found.view;
  return fail(ErrorCode::unsupported, "{}: tensor {}: expected numbers, found {}",
              listing_.string(), name, found.format->name);
}

Result<StoredTensor> Checkpoint::stored_weight(std::string_view name, const Shape& shape) const {
  if (dummy_) {
    TROUPE_TRY(const Tensor noise, dummy_->tensor(name, shape));
    return StoredTensor{.view = noise};
  }
  TROUPE_TRY(const SafetensorsFile* file, file_of(name));
  TROUPE_TRY(StoredTensor found, file->stored(name));
  if (!exceeds_cache_) found.direct_file = -1;
  TROUPE_CHECK(find_format(name, file->type_of(name), found));
  if (found.format != nullptr && found.view.shape() == shape) return found;
  const DType dtype = found.view.dtype();
  const bool usable = dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
  if (usable && found.view.shape() == shape) return found;
  return fail(
      ErrorCode::corrupt_data,
      "{}: tensor {}: expected bf16, f16 or f32 {}, found {} {} (does config.json belong to "
      "these weights?)",
      file->path().string(), name, shape.to_string(), file->type_of(name),
      found.view.shape().to_string());
}

Result<void> Checkpoint::find_format(std::string_view name, std::string_view file_type,
                                     StoredTensor& tensor) const {
  for (const WeightFormat& format : weight_formats()) {
    if (format.file_type != file_type || tensor.view.shape().rank() != 2) continue;
    const std::string companion = fmt::format("{}{}", name, format.companion_suffix);
    TROUPE_TRY(tensor.companion, weight(companion, format.companion_shape(tensor.view.shape())));
    tensor.format = &format;
    return {};
  }
  return {};
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : place_) names.push_back(name);
  return names;
}

}  // namespace troupe
