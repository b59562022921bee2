#include "models/checkpoint/gguf_checkpoint.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <fmt/ranges.h>

#include "models/checkpoint/files_with_extension.hpp"
#include "models/ops/gguf_format.hpp"

namespace troupe {
namespace {

constexpr std::array<std::string_view, 4> architectures{"llama", "qwen2", "qwen3", "qwen3moe"};

using Names = std::pair<std::string_view, std::string_view>;  // Hugging Face's, GGUF's
constexpr Names of_model[] = {
    {"model.embed_tokens", "token_embd"}, {"model.norm", "output_norm"}, {"lm_head", "output"}};
constexpr Names of_layer[] = {{"input_layernorm", "attn_norm"},
                              {"post_attention_layernorm", "ffn_norm"},
                              {"self_attn.q_proj", "attn_q"},
                              {"self_attn.k_proj", "attn_k"},
                              {"self_attn.v_proj", "attn_v"},
                              {"self_attn.o_proj", "attn_output"},
                              {"self_attn.q_norm", "attn_q_norm"},
                              {"self_attn.k_norm", "attn_k_norm"},
                              {"mlp.gate_proj", "ffn_gate"},
                              {"mlp.up_proj", "ffn_up"},
                              {"mlp.down_proj", "ffn_down"},
                              {"mlp.gate", "ffn_gate_inp"},
                              {"block_sparse_moe.gate", "ffn_gate_inp"}};
constexpr Names of_expert[] = {{"gate_proj", "ffn_gate_exps"}, {"up_proj", "ffn_up_exps"},
                               {"down_proj", "ffn_down_exps"}, {"w1", "ffn_gate_exps"},
                               {"w3", "ffn_up_exps"},          {"w2", "ffn_down_exps"}};

/// GGUF's name; empty if there is none.
std::string_view renamed(std::span<const Names> names, std::string_view name) {
  const auto found = std::ranges::find(names, name, &Names::first);
  return found == names.end() ? std::string_view() : found->second;
}

/// Takes "PREFIX<number>." off the front of a name.
std::optional<std::int64_t> take_number(std::string_view prefix, std::string_view& name) {
  if (!name.starts_with(prefix)) return std::nullopt;
  const std::string_view rest = name.substr(prefix.size());
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (error != std::errc() || end == rest.data() + rest.size() || *end != '.' || number < 0) {
    return std::nullopt;
  }
  name = rest.substr(static_cast<std::size_t>(end - rest.data()) + 1);
  return number;
}

struct GgufName {
  std::string text;
  std::int64_t expert = -1;
};

std::optional<GgufName> gguf_name(std::string_view name) {
  const auto dot = name.rfind('.');
  if (dot == name.npos) return std::nullopt;
  const std::string_view kind = name.substr(dot);  // .weight or .bias
  std::string_view module = name.substr(0, dot);
  if (const auto of_all = renamed(of_model, module); !of_all.empty()) {
    return GgufName{fmt::format("{}{}", of_all, kind)};
  }
  const auto layer = take_number("model.layers.", module);
  if (!layer) return std::nullopt;
  auto expert = take_number("mlp.experts.", module);
  if (!expert) expert = take_number("block_sparse_moe.experts.", module);  // Mixtral's
  const auto found = expert ? renamed(of_expert, module) : renamed(of_layer, module);
  if (found.empty()) return std::nullopt;
  return GgufName{fmt::format("blk.{}.{}{}", *layer, found, kind), expert.value_or(-1)};
}

Result<std::vector<std::filesystem::path>> gguf_files(const std::filesystem::path& folder) {
  auto files = files_with_extension(folder, {".gguf"});
  if (files.size() < 2) return files;
  constexpr std::string_view first_part = "-00001";
  const std::string first = files.front().stem();
  const std::string end = fmt::format("-of-{:05}", files.size());
  const auto begin = first.size() - std::min(first.size(), first_part.size() + end.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string part = fmt::format("{}-{:05}{}", first.substr(0, begin), i + 1, end);
    if (files[i].stem() == part) continue;
    return fail(ErrorCode::corrupt_data,
                "{}: {} GGUF files, of which {} is not {}.gguf: keep one model, of which all parts "
                "are there",
                folder.string(), files.size(), files[i].filename().string(), part);
  }
  return files;
}

}  // namespace

Result<std::optional<GgufCheckpoint>> GgufCheckpoint::open(const std::filesystem::path& folder) {
  TROUPE_TRY(const auto paths, gguf_files(folder));
  if (paths.empty()) return std::optional<GgufCheckpoint>();
  GgufCheckpoint checkpoint;
  for (const auto& path : paths) {
    TROUPE_TRY(auto file, GgufFile::open(path));
    checkpoint.files_.push_back(std::move(file));
  }
  const auto architecture = checkpoint.files_.front().text("general.architecture");
  if (!architecture || std::ranges::find(architectures, *architecture) == architectures.end()) {
    return fail(ErrorCode::unsupported,
                "{}: weights of the architecture {}; of GGUF files those of {} are read: take the "
                "model's safetensors",
                checkpoint.path().string(), architecture.value_or("(none)"),
                fmt::join(architectures, ", "));
  }
  checkpoint.architecture_ = *architecture;
  return std::optional(std::move(checkpoint));
}

std::optional<GgufCheckpoint::Place> GgufCheckpoint::find(std::string_view name) const {
  auto wanted = gguf_name(name);
  if (!wanted) return std::nullopt;
  for (const GgufFile& file : files_) {
    if (const auto* const info = file.find(wanted->text); info != nullptr) {
      return Place{&file, info, std::move(wanted->text), wanted->expert};
    }
  }
  return std::nullopt;
}

Result<std::int64_t> GgufCheckpoint::interleaved_rows(const Place& place, std::int64_t rows) const {
  const std::string_view module = std::string_view(place.name).substr(0, place.name.rfind('.'));
  const bool is_query = module.ends_with(".attn_q");
  if (architecture_ != "llama" || (!is_query && !module.ends_with(".attn_k"))) return 0;
  const GgufFile& first = files_.front();
  const auto queries = first.integer("llama.attention.head_count");
  const auto heads = is_query ? queries : first.integer("llama.attention.head_count_kv");
  const std::int64_t count = heads.value_or(queries.value_or(0));
  if (count > 0 && rows % count == 0 && rows / count % 2 == 0) return rows / count;
  return fail(ErrorCode::corrupt_data, "{}: tensor {}: {} rows are not those of {} heads",
              place.file->path().string(), place.name, rows, count);
}

Result<StoredTensor> GgufCheckpoint::stored_weight(std::string_view name,
                                                   const Shape& shape) const {
  const auto place = find(name);
  if (!place) return fail(ErrorCode::not_found, "{}: missing tensor {}", path().string(), name);
  const std::string where = fmt::format("{}: tensor {}", place->file->path().string(), place->name);
  const GgufType* const type = gguf_type(place->info->type);
  if (type == nullptr) {
    return fail(ErrorCode::unsupported,
                "{} is of type {} of GGML; F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, "
                "Q5_K and Q6_K are read",
                where, place->info->type);
  }
  std::vector<std::int64_t> extents = place->info->extents;
  std::int64_t elements_before = 0;
  if (place->expert >= 0 && extents.size() == 3 && place->expert < extents.front()) {
    elements_before = place->expert * extents[1] * extents[2];
    extents.erase(extents.begin());
  }
  if (Shape(extents) != shape) {
    return fail(ErrorCode::corrupt_data,
                "{}: expected {}, found [{}] (does config.json belong to these weights?)", where,
                shape.to_string(), fmt::join(place->info->extents, ", "));
  }
  // A view is not const; the pages are mapped read-only, so writing would trap.
  auto* const data = const_cast<std::byte*>(place->file->data()) + place->info->begin +
                     elements_before / type->block_columns * type->block_bytes;
  if (shape.rank() == 1 && !type->dtype) {
    return fail(ErrorCode::unsupported, "{}: {} of one row, which are numbers elsewhere", where,
                type->format.name);
  }
  TROUPE_TRY(const std::int64_t interleaved, interleaved_rows(*place, shape[0]));
  if (type->dtype && interleaved == 0) {
    return StoredTensor{.view = Tensor(data, *type->dtype, shape)};
  }
  const Shape matrix = shape.rank() == 1 ? Shape{shape[0], 1} : shape;  // a bias has one column
  const std::int64_t row_bytes = matrix[1] / type->block_columns * type->block_bytes;
  StoredTensor stored{.view = Tensor(data, DType::u8, {matrix[0], row_bytes}),
                      .format = &type->format,
                      .scheme = {.coding = type->format.coding,
                                 .group_columns = type->group_columns,
                                 .has_zero_points = type->format.has_fractional_zeros},
                      .interleaved_rows = interleaved};
  stored.groups = groups_of(stored.scheme, matrix);
  // Numbers are f32 where scales are f16, as they are in other formats; else bf16.
  if (type->dtype || type->has_half_scales) stored.companion = Tensor(nullptr, DType::f16, {0});
  return stored;
}

}  // namespace troupe
