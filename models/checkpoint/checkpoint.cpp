#include "models/checkpoint/checkpoint.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "models/json/json_file.hpp"
#include "models/ops/gguf_format.hpp"
#include "models/ops/unaligned.hpp"
#include "runtime/base/available_memory.hpp"

namespace troupe {

namespace {

constexpr std::string_view single_name = "model.safetensors";
constexpr std::string_view index_name = "model.safetensors.index.json";

/// The module that a weight belongs to, as quantization_config names it.
std::string_view module_of(std::string_view weight) {
  constexpr std::string_view suffix = ".weight";
  return weight.ends_with(suffix) ? weight.substr(0, weight.size() - suffix.size()) : weight;
}

/// `name` with `suffix` in the place of `stem` at its end; after it if it does not end so.
std::string renamed(std::string_view name, std::string_view stem, std::string_view suffix) {
  if (name.ends_with(stem)) name.remove_suffix(stem.size());
  return fmt::format("{}{}", name, suffix);
}

/// The shape without extents of 1.
Shape without_ones(const Shape& shape) {
  std::vector<std::int64_t> extents;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] != 1) extents.push_back(shape[i]);
  }
  return Shape(extents);
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& folder, LoadFormat format,
                                    DType dtype) {
  if (format != LoadFormat::dummy) return open(folder);
  TROUPE_TRY(const QuantizationConfig quantization, load_quantization(folder));
  return dummy(dtype, quantization);
}

Result<Checkpoint> Checkpoint::dummy(DType dtype, const QuantizationConfig& quantization) {
  Checkpoint checkpoint;
  checkpoint.listing_ = "dummy weights";
  const bool has_mxfp4 = std::ranges::any_of(quantization.groups, [](const auto& group) {
    return group.scheme.coding == WeightCoding::mxfp4_experts;
  });
  if (has_mxfp4) checkpoint.quantization_ = quantization;
  TROUPE_TRY(checkpoint.dummy_, DummyWeights::create(dtype, has_mxfp4));
  return checkpoint;
}

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& folder) {
  Checkpoint checkpoint;
  TROUPE_TRY(checkpoint.quantization_, load_quantization(folder));
  checkpoint.folder_ = folder;
  std::error_code status;
  if (const auto index = folder / index_name; std::filesystem::exists(index, status)) {
    TROUPE_CHECK(checkpoint.open_shards(index));
    checkpoint.judge_size();
    return checkpoint;
  }
  checkpoint.listing_ = folder / single_name;
  if (!std::filesystem::exists(checkpoint.listing_, status)) {
    TROUPE_TRY(checkpoint.gguf_, GgufCheckpoint::open(folder));
    if (!checkpoint.gguf_) {
      return fail(ErrorCode::not_found, "{}: no weights: expected {}, {} or a GGUF file",
                  folder.string(), single_name, index_name);
    }
    checkpoint.listing_ = checkpoint.gguf_->path();
    // Matrices say themselves how they are quantised; a group without modules says that they are.
    checkpoint.quantization_ = QuantizationConfig();
    checkpoint.quantization_.method = "GGUF";
    checkpoint.quantization_.groups.push_back({{}, {.coding = WeightCoding::gguf_q8_0}});
    return checkpoint;
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

const SafetensorsFile* Checkpoint::file_with(std::string_view name) const {
  const auto found = place_.find(name);
  return found == place_.end() ? nullptr : &files_[found->second];
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
  if (dummy_) return dummy_weight(name, shape);
  if (substitute_) {
    if (const auto other = substitute_(name)) return StoredTensor{.view = *other};
  }
  if (gguf_) return gguf_->stored_weight(name, shape);
  const WeightScheme* const scheme =
      shape.rank() == 1 ? nullptr : quantization_.scheme_of(module_of(name));
  if (scheme != nullptr) {
    TROUPE_TRY(auto coded, coded_weight(name, shape, *scheme));
    if (coded) return *std::move(coded);
  }
  TROUPE_TRY(const SafetensorsFile* file, file_of(name));
  TROUPE_TRY(StoredTensor found, file->stored(name));
  if (!exceeds_cache_) found.direct_file = -1;
  const DType dtype = found.view.dtype();
  const bool usable = dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
  if (usable && found.view.shape() == shape) return found;
  const bool may_be_codes = !usable && shape.rank() > 1;
  return fail(ErrorCode::corrupt_data,
              "{}: tensor {}: expected bf16, f16 or f32 {}, found {} {} ({})",
              file->path().string(), name, shape.to_string(), file->type_of(name),
              found.view.shape().to_string(),
              may_be_codes && scheme == nullptr
                  ? "quantization_config says that it is not quantised; are these its weights?"
                  : "does config.json belong to these weights?");
}

Result<StoredTensor> Checkpoint::dummy_weight(std::string_view name, const Shape& shape) const {
  const WeightScheme* const scheme =
      shape.rank() == 3 ? quantization_.scheme_of(module_of(name)) : nullptr;
  if (scheme == nullptr || scheme->coding != WeightCoding::mxfp4_experts) {
    TROUPE_TRY(const Tensor noise, dummy_->tensor(name, shape));
    return StoredTensor{.view = noise};
  }
  const WeightFormat& format = weight_format(scheme->coding);
  StoredTensor made{.format = &format, .scheme = *scheme, .groups = groups_of(*scheme, shape)};
  TROUPE_TRY(made.view, dummy_->mxfp4_codes(name, format.codes_shape(shape)));
  TROUPE_TRY(made.companion, dummy_->mxfp4_scales(name, format.scales_shape(made.groups)));
  return made;
}

Result<std::optional<StoredTensor>> Checkpoint::coded_weight(std::string_view name,
                                                             const Shape& shape,
                                                             const WeightScheme& scheme) const {
  const WeightFormat& format = weight_format(scheme.coding);
  const std::string codes = renamed(name, format.stem, format.codes);
  const bool is_of_experts = scheme.coding == WeightCoding::mxfp4_experts;
  if (!contains(codes) || shape.rank() != (is_of_experts ? 3 : 2)) {
    return std::optional<StoredTensor>();
  }
  TROUPE_TRY(const SafetensorsFile* file, file_of(codes));
  const std::string_view type = file->type_of(codes);
  if (type != format.file_type) {
    return std::optional<StoredTensor>();
  }
  const Shape expected = format.codes_shape(shape);
  TROUPE_TRY(StoredTensor found, file->stored(codes));
  if (!exceeds_cache_) found.direct_file = -1;
  if (found.view.shape() != expected) {
    return fail(ErrorCode::corrupt_data,
                "{}: tensor {}: expected {} of {} {}, found {} (do config.json and its "
                "quantization_config belong to these weights?)",
                file->path().string(), codes, format.name, shape.to_string(), expected.to_string(),
                found.view.shape().to_string());
  }
  found.format = &format;
  found.scheme = scheme;
  found.groups = groups_of(scheme, shape);
  TROUPE_CHECK(find_companions(name, shape, found));
  return std::optional(found);
}

Result<void> Checkpoint::find_companions(std::string_view name, const Shape& shape,
                                         StoredTensor& tensor) const {
  constexpr std::array<std::string_view, 3> number_types = {"F32", "BF16", "F16"};
  constexpr std::array<std::string_view, 4> scale_types = {"F32", "BF16", "F16", "F8_E8M0"};
  constexpr std::array<std::string_view, 2> power_types = {"U8", "F8_E8M0"};
  constexpr std::array<std::string_view, 1> e4m3_types = {"F8_E4M3"};
  constexpr std::array<std::string_view, 1> tensor_scale_types = {"F32"};
  constexpr std::array<std::string_view, 2> zero_types = {"I32", "I8"};
  constexpr std::array<std::string_view, 1> index_types = {"I32"};
  const WeightFormat& format = *tensor.format;
  const WeightCoding coding = format.coding;
  std::string scales = renamed(name, format.stem, format.scales[0]);
  if (!format.scales[1].empty() && !contains(scales)) {
    const std::string other = renamed(name, format.stem, format.scales[1]);
    if (contains(other)) scales = other;
  }
  std::span<const std::string_view> types = number_types;
  if (coding == WeightCoding::fp8) types = scale_types;
  if (coding == WeightCoding::mxfp4_packed || coding == WeightCoding::mxfp4_experts) {
    types = power_types;
  }
  if (!format.tensor_scale.empty()) types = e4m3_types;
  TROUPE_TRY(const StoredTensor scale,
             companion(scales, format.scales_shape(tensor.groups), types));
  tensor.companion = scale.view;
  if (!format.tensor_scale.empty()) {
    tensor.companion = {scale.view.data(), DType::f8_e4m3, scale.view.shape()};
    TROUPE_TRY(const StoredTensor of_all,
               companion(renamed(name, format.stem, format.tensor_scale), {1}, tensor_scale_types));
    tensor.tensor_scale = scale_at(of_all.view, 0);
    if (format.divides_by_tensor_scale) tensor.tensor_scale = 1.0F / tensor.tensor_scale;
  }
  if (tensor.scheme.has_zero_points && format.zero_points_shape != nullptr) {
    const Shape expected = format.zero_points_shape(tensor.groups, shape);
    const bool is_packed = coding != WeightCoding::int8;
    TROUPE_TRY(const StoredTensor zeros,
               companion(renamed(name, format.stem, format.zero_points), expected,
                         std::span(zero_types).subspan(is_packed ? 0 : 1, 1)));
    tensor.zero_points = zeros.view;
  }
  if (format.group_index.empty()) return {};
  const std::string index = renamed(name, format.stem, format.group_index);
  if (!tensor.scheme.is_ordered && !contains(index)) return {};
  TROUPE_TRY(const StoredTensor order, companion(index, {shape[1]}, index_types));
  bool is_in_order = true;
  for (std::int64_t i = 0; i < shape[1]; ++i) {
    const auto group = load_unaligned<std::int32_t>(order.view.data(), i);
    const std::int64_t width = tensor.scheme.group_columns;
    is_in_order = is_in_order && group == (width > 0 ? i / width : 0);
    if (group >= 0 && group < tensor.groups[1]) continue;
    return fail(ErrorCode::corrupt_data,
                "{}: tensor {}: column {} is in group {}, but there are {} (is group_size of "
                "quantization_config right?)",
                listing_.string(), index, i, group, tensor.groups[1]);
  }
  if (!is_in_order) tensor.group_index = order.view;
  return {};
}

Result<StoredTensor> Checkpoint::companion(std::string_view name, const Shape& shape,
                                           std::span<const std::string_view> types) const {
  if (!contains(name)) {
    return fail(ErrorCode::not_found,
                "{}: missing tensor {}, without which the codes of its matrix are no numbers: the "
                "checkpoint is not whole; copy it again, or make it anew",
                listing_.string(), name);
  }
  TROUPE_TRY(const SafetensorsFile* file, file_of(name));
  TROUPE_TRY(const StoredTensor found, file->stored(name));
  const std::string_view type = file->type_of(name);
  if (std::ranges::find(types, type) != types.end() &&
      without_ones(found.view.shape()) == without_ones(shape)) {
    return found;
  }
  return fail(ErrorCode::corrupt_data,
              "{}: tensor {}: expected {} {}, found {} {} (does quantization_config say which rows "
              "and columns share a scale?)",
              file->path().string(), name, fmt::join(types, " or "), shape.to_string(), type,
              found.view.shape().to_string());
}

Result<void> Checkpoint::check_scales(std::string_view name, const StoredTensor& weight) const {
  if (weight.format == nullptr) return {};
  if (const auto block = block_that_is_not_finite(weight)) {
    return fail(
        ErrorCode::corrupt_data,
        "{}: tensor {}: a scale of block {} is not finite; the file is damaged, or was made "
        "from weights that are: make it anew",
        listing_.string(), name, *block);
  }
  for (std::int64_t i = 0; i < weight.companion.elements(); ++i) {
    const float scale = scale_at(weight.companion, i) * weight.tensor_scale;
    if (std::isfinite(scale)) continue;
    return fail(ErrorCode::corrupt_data,
                "{}: tensor {}: scale number {} is {}; the checkpoint is damaged, or was made from "
                "weights that are: make it anew",
                listing_.string(), name, i, scale);
  }
  return {};
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : place_) names.push_back(name);
  return names;
}

}  // namespace troupe
