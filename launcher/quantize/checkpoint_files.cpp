#include "launcher/quantize/checkpoint_files.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <variant>

#include "models/json/json_file.hpp"
#include "runtime/base/sync.hpp"

namespace troupe {
namespace {

/// The name that compressed-tensors has for a scheme's format.
std::string_view format_of(QuantizationScheme scheme) {
  constexpr std::array<std::string_view, 5> names = {"float-quantized", "int-quantized",
                                                     "pack-quantized", "mxfp4-pack-quantized",
                                                     "nvfp4-pack-quantized"};
  return names[static_cast<std::size_t>(scheme)];
}

nlohmann::ordered_json weights_of(QuantizationScheme scheme, std::int64_t group,
                                  const QuantizationOptions& options) {
  using enum QuantizationScheme;
  const bool has_groups = is_grouped(scheme);
  const bool is_float = scheme == fp8 || scheme == mxfp4 || scheme == nvfp4;
  const std::string_view strategy = has_tensor_scale(scheme) ? "tensor_group"
                                    : has_groups             ? "group"
                                                             : "channel";
  nlohmann::ordered_json weights = {{"num_bits", has_groups ? 4 : 8},
                                    {"type", is_float ? "float" : "int"},
                                    {"symmetric", true},
                                    {"strategy", strategy},
                                    {"group_size", nullptr},
                                    {"block_structure", nullptr},
                                    {"dynamic", false},
                                    {"actorder", nullptr},
                                    {"observer", "minmax"},
                                    {"observer_kwargs", nlohmann::ordered_json::object()}};
  if (has_groups) weights["group_size"] = group;
  if (scheme == mxfp4) weights["scale_dtype"] = "torch.uint8";
  if (scheme == nvfp4) weights["scale_dtype"] = "torch.float8_e4m3fn";
  if (scheme == w4a16 && options.method == QuantizationMethod::gptq && options.gptq.act_order) {
    weights["actorder"] = "weight";
  }
  return weights;
}

nlohmann::ordered_json inputs_of(QuantizationScheme scheme) {
  if (scheme != QuantizationScheme::fp8 && scheme != QuantizationScheme::int8) return nullptr;
  return {{"num_bits", 8},         {"type", scheme == QuantizationScheme::fp8 ? "float" : "int"},
          {"symmetric", true},     {"strategy", "token"},
          {"group_size", nullptr}, {"block_structure", nullptr},
          {"dynamic", true},       {"actorder", nullptr},
          {"observer", nullptr},   {"observer_kwargs", nlohmann::ordered_json::object()}};
}

/// An expression for a module's name; `any_number`: and for those that differ only in numbers.
std::string expression_of(std::string_view module, bool any_number) {
  std::string expression = "re:";
  for (std::size_t begin = 0; begin <= module.size();) {
    const std::size_t end = std::min(module.find('.', begin), module.size());
    const std::string_view part = module.substr(begin, end - begin);
    const bool is_number = part.find_first_not_of("0123456789") == std::string_view::npos;
    if (begin > 0) expression += "\\.";
    expression += any_number && is_number ? "\\d+" : part;
    begin = end + 1;
  }
  return expression + "$";
}

/// The targets of each size of groups. One size is the class of all matrices. Of several, each has
/// expressions: vLLM would look for the class before the parts of what it fuses, and transformers
/// takes the first group with a class for all experts.
std::map<std::int64_t, std::set<std::string>> targets_of(
    const std::map<std::int64_t, std::vector<std::string>>& modules) {
  if (modules.size() <= 1) {
    return {{modules.empty() ? 0 : modules.begin()->first, {"Linear"}}};
  }
  std::map<std::string, std::set<std::int64_t>> sizes;  // of each expression
  for (const auto& [size, names] : modules) {
    for (const std::string& name : names) sizes[expression_of(name, true)].insert(size);
  }
  std::map<std::int64_t, std::set<std::string>> targets;
  for (const auto& [size, names] : modules) {
    for (const std::string& name : names) {
      std::string expression = expression_of(name, true);
      if (sizes[expression].size() > 1) expression = expression_of(name, false);
      targets[size].insert(std::move(expression));
    }
  }
  return targets;
}

bool is_weights_file(const std::filesystem::path& path) {
  const std::string name = path.filename().string(), extension = path.extension().string();
  constexpr std::array<std::string_view, 9> extensions = {
      ".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".h5", ".msgpack", ".unfinished"};
  return std::ranges::find(extensions, extension) != extensions.end() ||
         name.ends_with(".index.json") || name == "config.json" || name.starts_with('.');
}

Result<void> copy_other_files(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(from, error)) {
    if (!entry.is_regular_file(error) || is_weights_file(entry.path())) continue;
    std::filesystem::copy_file(entry.path(), to / entry.path().filename(),
                               std::filesystem::copy_options::overwrite_existing, error);
    if (error) {
      return fail(ErrorCode::io, "cannot copy {} to {}: {}", entry.path().string(), to.string(),
                  error.message());
    }
    // The input may be read-only; its copies are the user's.
    std::filesystem::permissions(to / entry.path().filename(), std::filesystem::perms::owner_write,
                                 std::filesystem::perm_options::add, error);
  }
  return {};
}

Result<nlohmann::ordered_json> read_config(const Checkpoint& checkpoint) {
  constexpr std::size_t most = std::size_t{64} << 20;
  TROUPE_TRY(const std::string text, read_text_file(checkpoint.folder() / "config.json", most));
  return nlohmann::ordered_json::parse(text, nullptr, false);
}

}  // namespace

nlohmann::ordered_json quantization_config(const QuantizationPlan& plan,
                                           const QuantizationOptions& options,
                                           const std::set<std::int64_t>& kept,
                                           const Checkpoint& checkpoint) {
  const auto scheme = std::get<QuantizationScheme>(options.scheme);
  std::map<std::int64_t, std::vector<std::string>> modules;  // of each size of groups
  for (const auto& [name, matrix] : plan.matrices) {
    if (kept.contains(matrix.layer)) continue;
    modules[is_grouped(scheme) ? matrix.group : 0].push_back(matrix.module());
  }
  nlohmann::ordered_json groups = nlohmann::ordered_json::object();
  for (const auto& [size, targets] : targets_of(modules)) {
    groups[fmt::format("group_{}", groups.size())] = {
        {"targets", targets},
        {"weights", weights_of(scheme, size, options)},
        {"input_activations", inputs_of(scheme)},
        {"output_activations", nullptr},
        {"format", format_of(scheme)}};
  }
  nlohmann::ordered_json ignored = nlohmann::ordered_json::array();
  constexpr std::string_view suffix = ".weight";
  bool has_head = false;
  for (const std::string& name : checkpoint.names()) {
    const MatrixPlan* const planned = plan.find(name);
    const bool stays = planned == nullptr || kept.contains(planned->layer);
    if (!stays || !name.ends_with(suffix)) continue;
    if (checkpoint.file_with(name)->raw(name).extents.size() < 2) continue;
    ignored.push_back(name.substr(0, name.size() - suffix.size()));
    has_head = has_head || name == "lm_head.weight";
  }
  if (!has_head) ignored.push_back("lm_head");
  return {{"quant_method", "compressed-tensors"},
          {"format", format_of(scheme)},
          {"quantization_status", "compressed"},
          {"global_compression_ratio", nullptr},
          {"config_groups", groups},
          {"ignore", ignored},
          {"kv_cache_scheme", nullptr}};
}

Result<nlohmann::ordered_json> with_kv_scales(const Checkpoint& checkpoint) {
  constexpr std::string_view key = "quantization_config";
  TROUPE_TRY(nlohmann::ordered_json config, read_config(checkpoint));
  if (!config.contains(key) && config.contains("text_config")) config = config["text_config"];
  nlohmann::ordered_json quantization = {{"quant_method", "compressed-tensors"},
                                         {"format", "dense"},
                                         {"quantization_status", "compressed"},
                                         {"global_compression_ratio", nullptr},
                                         {"config_groups", nlohmann::ordered_json::object()},
                                         {"ignore", nlohmann::ordered_json::array()}};
  if (config.contains(key)) quantization = config[key];
  quantization["kv_cache_scheme"] = {
      {"num_bits", 8},         {"type", "float"},
      {"symmetric", true},     {"strategy", "tensor"},
      {"group_size", nullptr}, {"block_structure", nullptr},
      {"dynamic", false},      {"actorder", nullptr},
      {"observer", "minmax"},  {"observer_kwargs", nlohmann::ordered_json::object()}};
  return quantization;
}

Result<void> write_other_files(const OutputFolder& output, const Checkpoint& checkpoint,
                               const std::vector<std::vector<TensorSpec>>& shards,
                               const nlohmann::ordered_json& quantization) {
  TROUPE_CHECK(copy_other_files(checkpoint.folder(), output.path()));
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string file =
        output.shard(static_cast<std::int64_t>(i), std::ssize(shards)).filename().string();
    for (const TensorSpec& spec : shards[i]) {
      map[spec.name] = file;
      bytes += spec.bytes;
    }
  }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", bytes}}}, {"weight_map", map}};
  TROUPE_CHECK(write_synced((output.path() / "model.safetensors.index.json").string(),
                            index.dump(2) + "\n"));
  TROUPE_TRY(nlohmann::ordered_json config, read_config(checkpoint));
  if (!quantization.is_null()) config["quantization_config"] = quantization;
  return write_synced((output.path() / "config.json").string(), config.dump(2) + "\n");
}

}  // namespace troupe
