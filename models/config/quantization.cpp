#include "models/config/quantization.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "models/config/config_limits.hpp"
#include "models/config/fields.hpp"
#include "models/json/json_file.hpp"

namespace troupe {
namespace {

constexpr std::int64_t mxfp4_group = 32, nvfp4_group = 16;

/// Appends the strings of a list under the first present key. A string counts as a list of one.
Result<void> add_patterns(const Fields& fields, Fields::Spellings keys,
                          std::vector<ModulePattern>& patterns) {
  const nlohmann::json* const found = fields.find(keys);
  if (found == nullptr) return {};
  const std::string where = fmt::format("{}: {}", fields.where(), fields.spelling(keys));
  const nlohmann::json one = nlohmann::json::array({*found});
  for (const nlohmann::json& entry : found->is_array() ? *found : one) {
    if (!entry.is_string()) {
      return fail(ErrorCode::corrupt_data, "{}: expected a list of modules' names", where);
    }
    auto pattern = ModulePattern::parse(entry.get_ref<const std::string&>());
    if (!pattern.ok()) {
      return fail(pattern.error().code, "{}: {}", where, pattern.error().message);
    }
    patterns.push_back(*std::move(pattern));
  }
  return {};
}

/// Adds a group of all matrices.
void add_for_all(QuantizationConfig& config, const WeightScheme& scheme) {
  auto all = ModulePattern::parse("Linear");
  config.groups.push_back({{*std::move(all)}, scheme});
}

/// The number of columns that share a scale; 0: all of a row.
Result<std::int64_t> read_group_size(const Fields& fields, Fields::Spellings keys) {
  TROUPE_TRY(const std::int64_t size, fields.integer(keys, -1, max_width));
  if (size == 0) return fields.unsupported(fields.spelling(keys), "0", "-1, or columns of a group");
  return std::max<std::int64_t>(size, 0);
}

// DeepSeek-V3's, 2024, section 3.3.2; `quant_method` fp8 of Hugging Face and vLLM.
Result<QuantizationConfig> read_fp8(const Fields& fields) {
  QuantizationConfig config;
  config.has_activation_scheme = true;
  TROUPE_TRY(const std::string format, fields.string_or({"fmt"}, "e4m3"));
  if (format != "e4m3") return fields.unsupported("fmt", format, "e4m3");
  TROUPE_TRY(const auto block, fields.integers({"weight_block_size"}, 1, max_width));
  if (!block.empty() && block.size() != 2) {
    return fields.unsupported("weight_block_size", fmt::format("of {} numbers", block.size()),
                              "[rows, columns]");
  }
  WeightScheme scheme{.coding = WeightCoding::fp8, .group_rows = 0, .group_columns = 0};
  if (!block.empty())
    std::tie(scheme.group_rows, scheme.group_columns) = std::pair(block[0], block[1]);
  add_for_all(config, scheme);
  TROUPE_CHECK(add_patterns(fields, {"modules_to_not_convert", "ignored_layers"}, config.excluded));
  return config;
}

/// Sets the rows and columns that share a scale.
Result<void> read_strategy(const Fields& weights, WeightScheme& scheme) {
  TROUPE_TRY(const std::string strategy, weights.string_or({"strategy"}, "tensor"));
  if (strategy == "tensor") {
    scheme.group_rows = scheme.group_columns = 0;
    return {};
  }
  scheme.group_rows = 1;
  scheme.group_columns = 0;
  if (strategy == "channel") return {};
  if (strategy == "group") {
    TROUPE_TRY(scheme.group_columns, read_group_size(weights, {"group_size"}));
    return {};
  }
  if (strategy == "block") {
    TROUPE_TRY(const auto block, weights.integers({"block_structure"}, 1, max_width));
    if (block.size() != 2) {
      return weights.unsupported("block_structure", fmt::format("of {} numbers", block.size()),
                                 "[rows, columns]");
    }
    scheme.group_rows = block[0];
    scheme.group_columns = block[1];
    return {};
  }
  if (strategy == "tensor_group" && scheme.coding == WeightCoding::nvfp4_packed) {
    TROUPE_TRY(scheme.group_columns, read_group_size(weights, {"group_size"}));
    return {};
  }
  return weights.unsupported("strategy", strategy,
                             "tensor, channel, group, block; tensor_group for NVFP4");
}

struct PublishedCoding {
  std::string_view format, type;
  std::int64_t bits;
  WeightCoding coding;
};

constexpr std::array published_codings = {
    PublishedCoding{"float-quantized", "float", 8, WeightCoding::fp8},
    PublishedCoding{"naive-quantized", "float", 8, WeightCoding::fp8},
    PublishedCoding{"int-quantized", "int", 8, WeightCoding::int8},
    PublishedCoding{"naive-quantized", "int", 8, WeightCoding::int8},
    PublishedCoding{"pack-quantized", "int", 4, WeightCoding::packed_int4},
    PublishedCoding{"pack-quantized", "int", 8, WeightCoding::packed_int8},
    PublishedCoding{"mxfp4-pack-quantized", "float", 4, WeightCoding::mxfp4_packed},
    PublishedCoding{"nvfp4-pack-quantized", "float", 4, WeightCoding::nvfp4_packed},
};

/// The scheme of a group's `weights` in compressed-tensors' terms.
Result<WeightScheme> read_weights(const Fields& weights, const std::string& format) {
  TROUPE_TRY(const std::int64_t bits, weights.integer({"num_bits"}, 1, 16));
  TROUPE_TRY(const std::string type, weights.string_or({"type"}, "int"));
  const auto* const found = std::ranges::find_if(published_codings, [&](const auto& row) {
    return row.format == format && row.type == type && row.bits == bits;
  });
  if (found == published_codings.end()) {
    return weights.unsupported(
        "format", fmt::format("{} of {}{}", format, type, bits),
        "float-quantized of float8, int-quantized of int8, naive-quantized of both, "
        "pack-quantized of int4 and int8, mxfp4-pack-quantized and nvfp4-pack-quantized of float4");
  }
  WeightScheme scheme{.coding = found->coding};
  TROUPE_CHECK(read_strategy(weights, scheme));
  TROUPE_TRY(const bool symmetric, weights.boolean_or({"symmetric"}, true));
  scheme.has_zero_points = !symmetric;
  if (!symmetric && type == "float") {
    return weights.unsupported("symmetric", "false", "true for floats");
  }
  const nlohmann::json* const dynamic = weights.find({"dynamic"});
  if (dynamic != nullptr && *dynamic != false) {
    return weights.unsupported("dynamic", "(of weights)", "false");
  }
  if (scheme.coding == WeightCoding::mxfp4_packed && scheme.group_columns != mxfp4_group) {
    return weights.unsupported("group_size", fmt::to_string(scheme.group_columns), "32 for MXFP4");
  }
  if (scheme.coding == WeightCoding::nvfp4_packed && scheme.group_columns != nvfp4_group) {
    return weights.unsupported("group_size", fmt::to_string(scheme.group_columns), "16 for NVFP4");
  }
  const nlohmann::json* const order = weights.find({"actorder"});
  scheme.is_ordered = order != nullptr && (*order == "group" || *order == true);
  return scheme;
}

/// Refuses an object under `key` that says more than nothing.
Result<void> refuse_object(const Fields& fields, std::string_view key, bool is_harmless,
                           std::string_view remedy) {
  const nlohmann::json* const found = fields.find({key});
  if (found == nullptr || found->empty() || is_harmless) return {};
  return fields.unsupported(key, "(not empty)", remedy);
}

Result<QuantizationConfig::Group> read_group(const Fields& group, const std::string& format,
                                             bool& quantizes_activations) {
  QuantizationConfig::Group read;
  TROUPE_CHECK(add_patterns(group, {"targets"}, read.targets));
  const nlohmann::json* const inputs = group.find({"input_activations"});
  const nlohmann::json* const outputs = group.find({"output_activations"});
  if (inputs != nullptr || outputs != nullptr) quantizes_activations = true;
  TROUPE_TRY(const Fields weights, group.nested("weights"));
  TROUPE_TRY(const std::string own, group.string_or({"format"}, format));
  TROUPE_TRY(read.scheme, read_weights(weights, own));
  return read;
}

/// What is said of the KV cache in compressed-tensors' terms. Other schemes than fixed scales of a
/// whole tensor are noted only: the cache need not follow them.
Result<void> read_kv_scheme(const Fields& fields, QuantizationConfig& config) {
  const nlohmann::json* const found = fields.find({"kv_cache_scheme"});
  if (found == nullptr) return {};
  config.has_kv_scheme = true;
  if (!found->is_object()) return {};
  const Fields scheme(*found, fmt::format("{}: kv_cache_scheme", fields.where()));
  TROUPE_TRY(const std::int64_t bits, scheme.integer_or({"num_bits"}, 1, 16, 8));
  TROUPE_TRY(const std::string type, scheme.string_or({"type"}, "int"));
  TROUPE_TRY(const std::string strategy, scheme.string_or({"strategy"}, "tensor"));
  TROUPE_TRY(const bool symmetric, scheme.boolean_or({"symmetric"}, true));
  const nlohmann::json* const dynamic = scheme.find({"dynamic"});
  const bool is_fixed = dynamic == nullptr || *dynamic == false;
  if (bits != 8 || strategy != "tensor" || !symmetric || !is_fixed) return {};
  if (type == "float") config.kv_codes = DType::f8_e4m3;
  if (type == "int") config.kv_codes = DType::i8;
  return {};
}

Result<QuantizationConfig> read_compressed_tensors(const Fields& fields) {
  QuantizationConfig config;
  const nlohmann::json* const sparsity = fields.find({"sparsity_config"});
  const bool is_dense = sparsity != nullptr && sparsity->is_object() &&
                        sparsity->value("format", nlohmann::json("dense")) == "dense";
  TROUPE_CHECK(refuse_object(fields, "sparsity_config", is_dense, "weights that are not sparse"));
  TROUPE_CHECK(refuse_object(fields, "transform_config", false,
                             "weights without transforms, such as those of GPTQ or AWQ recipes"));
  TROUPE_TRY(const std::string format, fields.string_or({"format"}, "(none)"));
  TROUPE_TRY(const Fields groups, fields.nested("config_groups"));
  for (const auto& [name, object] : fields.find({"config_groups"})->items()) {
    const std::string where = fmt::format("{}: config_groups: {}", fields.where(), name);
    if (!object.is_object()) {
      return fail(ErrorCode::corrupt_data, "{}: expected an object", where);
    }
    const Fields group(object, where);
    if (group.find({"weights"}) == nullptr) continue;  // of activations alone
    TROUPE_TRY(auto read, read_group(group, format, config.has_activation_scheme));
    config.groups.push_back(std::move(read));
  }
  TROUPE_CHECK(read_kv_scheme(fields, config));
  TROUPE_CHECK(add_patterns(fields, {"ignore"}, config.excluded));
  return config;
}

Result<QuantizationConfig> read_modelopt(const Fields& fields) {
  QuantizationConfig config;
  TROUPE_TRY(const std::string algorithm, fields.string_or({"quant_algo"}, "(none)"));
  WeightScheme scheme{.coding = WeightCoding::fp8, .group_rows = 0, .group_columns = 0};
  if (algorithm == "FP8_PER_CHANNEL_PER_TOKEN") {
    scheme.group_rows = 1;
  } else if (algorithm == "FP8_PB_WO") {
    TROUPE_TRY(const std::int64_t size, fields.integer_or({"group_size"}, 1, max_width, 128));
    scheme.group_rows = scheme.group_columns = size;
  } else if (algorithm == "NVFP4") {
    TROUPE_TRY(const std::int64_t size, fields.integer_or({"group_size"}, 1, max_width, 16));
    if (size != nvfp4_group) {
      return fields.unsupported("group_size", fmt::to_string(size), "16 for NVFP4");
    }
    scheme = {.coding = WeightCoding::nvfp4, .group_rows = 1, .group_columns = nvfp4_group};
  } else if (algorithm != "FP8") {
    return fields.unsupported("quant_algo", algorithm,
                              "FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, NVFP4");
  }
  config.has_activation_scheme = algorithm != "FP8_PB_WO";
  TROUPE_CHECK(read_kv_scheme(fields, config));
  const nlohmann::json* const kv_algorithm = fields.find({"kv_cache_quant_algo"});
  if (kv_algorithm != nullptr) {
    config.has_kv_scheme = true;
    if (*kv_algorithm == "FP8") config.kv_codes = DType::f8_e4m3;
  }
  add_for_all(config, scheme);
  TROUPE_CHECK(add_patterns(fields, {"ignore", "exclude_modules"}, config.excluded));
  return config;
}

/// GPTQModel's `dynamic`: "-:EXPRESSION" excludes modules; "+:EXPRESSION", or without "+:", gives
/// them other bits or groups.
Result<void> read_dynamic(const Fields& fields, const WeightScheme& common,
                          QuantizationConfig& config) {
  const nlohmann::json* const found = fields.find({"dynamic"});
  if (found == nullptr || (found->is_boolean() && !found->get<bool>())) return {};
  if (!found->is_object()) {
    return fail(ErrorCode::corrupt_data, "{}: dynamic: expected an object", fields.where());
  }
  for (const auto& [key, object] : found->items()) {
    const bool excludes = key.starts_with("-:");
    const std::string expression = excludes || key.starts_with("+:") ? key.substr(2) : key;
    TROUPE_TRY(auto pattern, ModulePattern::parse("re:" + expression));
    if (excludes) {
      config.excluded.push_back(std::move(pattern));
      continue;
    }
    const Fields own(object, fmt::format("{}: dynamic: {}", fields.where(), key));
    WeightScheme scheme = common;
    const bool is_int4 = common.coding == WeightCoding::gptq_int4;
    TROUPE_TRY(const std::int64_t bits, own.integer_or({"bits"}, 1, 16, is_int4 ? 4 : 8));
    if (bits != 4 && bits != 8) return own.unsupported("bits", fmt::to_string(bits), "4, 8");
    scheme.coding = bits == 4 ? WeightCoding::gptq_int4 : WeightCoding::gptq_int8;
    if (own.find({"group_size"}) != nullptr) {
      TROUPE_TRY(scheme.group_columns, read_group_size(own, {"group_size"}));
    }
    config.groups.push_back({{std::move(pattern)}, scheme});
  }
  return {};
}

Result<QuantizationConfig> read_gptq(const Fields& fields) {
  QuantizationConfig config;
  TROUPE_TRY(const std::int64_t bits, fields.integer({"bits"}, 1, 16));
  if (bits != 4 && bits != 8) return fields.unsupported("bits", fmt::to_string(bits), "4, 8");
  WeightScheme scheme{.coding = bits == 4 ? WeightCoding::gptq_int4 : WeightCoding::gptq_int8,
                      .has_zero_points = true};
  TROUPE_TRY(scheme.group_columns, read_group_size(fields, {"group_size"}));
  TROUPE_TRY(const std::string format, fields.string_or({"checkpoint_format", "format"}, "gptq"));
  if (format != "gptq" && format != "gptq_v2") {
    return fields.unsupported("checkpoint_format", format, "gptq, gptq_v2");
  }
  scheme.zeros_less_one = format == "gptq";
  TROUPE_TRY(const std::string words, fields.string_or({"pack_dtype"}, "int32"));
  if (words != "int32") return fields.unsupported("pack_dtype", words, "int32");
  TROUPE_TRY(scheme.is_ordered, fields.boolean_or({"desc_act"}, false));
  TROUPE_CHECK(read_dynamic(fields, scheme, config));
  add_for_all(config, scheme);
  TROUPE_CHECK(add_patterns(fields, {"modules_to_not_convert"}, config.excluded));
  return config;
}

Result<QuantizationConfig> read_awq(const Fields& fields) {
  QuantizationConfig config;
  TROUPE_TRY(const std::int64_t bits, fields.integer({"bits", "w_bit"}, 1, 16));
  if (bits != 4) return fields.unsupported("bits", fmt::to_string(bits), "4");
  TROUPE_TRY(std::string version, fields.string_or({"version"}, "gemm"));
  std::ranges::transform(version, version.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (version != "gemm") return fields.unsupported("version", version, "gemm");
  TROUPE_TRY(const bool zero_point, fields.boolean_or({"zero_point"}, true));
  if (!zero_point) return fields.unsupported("zero_point", "false", "true");
  WeightScheme scheme{.coding = WeightCoding::awq_int4, .has_zero_points = true};
  TROUPE_TRY(scheme.group_columns, read_group_size(fields, {"group_size", "q_group_size"}));
  add_for_all(config, scheme);
  TROUPE_CHECK(add_patterns(fields, {"modules_to_not_convert"}, config.excluded));
  return config;
}

Result<QuantizationConfig> read_mxfp4(const Fields& fields) {
  QuantizationConfig config;
  add_for_all(
      config,
      {.coding = WeightCoding::mxfp4_experts, .group_rows = 1, .group_columns = mxfp4_group});
  TROUPE_CHECK(add_patterns(fields, {"modules_to_not_convert"}, config.excluded));
  return config;
}

struct Method {
  std::string_view name;
  Result<QuantizationConfig> (*read)(const Fields&);
};

constexpr std::array methods = {
    Method{"fp8", read_fp8},           Method{"compressed-tensors", read_compressed_tensors},
    Method{"modelopt", read_modelopt}, Method{"gptq", read_gptq},
    Method{"awq", read_awq},           Method{"mxfp4", read_mxfp4},
};

Result<QuantizationConfig> read_as(std::string_view name, const Fields& fields) {
  for (const Method& method : methods) {
    if (method.name != name) continue;
    TROUPE_TRY(QuantizationConfig config, method.read(fields));
    config.method = name;
    return config;
  }
  return fields.unsupported("quant_method", name,
                            "fp8, compressed-tensors, modelopt, gptq, awq, mxfp4; or weights in "
                            "bf16, f16 or f32");
}

/// A file beside config.json in which a tool says how it has quantised.
struct SideFile {
  std::string_view name;
  std::string_view key;  ///< of the object in it; empty: the file's own
  std::string_view method;
};

constexpr std::array side_files = {
    SideFile{"hf_quant_config.json", "quantization", "modelopt"},
    SideFile{"quantize_config.json", {}, "gptq"},
    SideFile{"quant_config.json", {}, "awq"},
};

}  // namespace

const WeightScheme* QuantizationConfig::scheme_of(std::string_view module) const {
  const auto is_about = [module](const ModulePattern& pattern) { return pattern.is_about(module); };
  if (groups.empty() || std::ranges::any_of(excluded, is_about)) return nullptr;
  // A group that names the module goes before one for all of its class.
  const auto find = [&](bool by_class) {
    return std::ranges::find_if(groups, [&](const Group& group) {
      return std::ranges::any_of(group.targets, [&](const ModulePattern& pattern) {
        return pattern.is_of_class() == by_class && is_about(pattern);
      });
    });
  };
  auto found = find(false);
  if (found == groups.end()) found = find(true);
  return found == groups.end() ? nullptr : &found->scheme;
}

std::string QuantizationConfig::describe() const {
  if (method.empty()) return "";
  std::string text = groups.empty()
                         ? fmt::format("{}: no weights are quantised", method)
                         : fmt::format("weights of {} are decoded as they are read", method);
  if (has_activation_scheme) text += "; scales for activations are not used";
  if (kv_codes) {
    text += fmt::format("; scales of the KV cache are used with kv_cache.dtype {}",
                        to_string(*kv_codes));
  } else if (has_kv_scheme) {
    text += "; its scheme for the KV cache is not used";
  }
  return text;
}

Result<QuantizationConfig> read_quantization(const Fields& fields) {
  TROUPE_TRY(const std::string name, fields.string_or({"quant_method"}, "(none)"));
  return read_as(name, fields);
}

Result<QuantizationConfig> quantization_of(const Fields& fields) {
  const nlohmann::json* const found = fields.find({"quantization_config"});
  if (found == nullptr) return QuantizationConfig();
  const std::string where = fields.where() + ": quantization_config";
  if (!found->is_object()) {
    return fail(ErrorCode::corrupt_data, "{}: expected an object", where);
  }
  return read_quantization(Fields(*found, where));
}

Result<QuantizationConfig> load_quantization(const std::filesystem::path& folder) {
  std::error_code ignored;
  const std::filesystem::path path = folder / "config.json";
  if (std::filesystem::exists(path, ignored)) {
    TROUPE_TRY(const nlohmann::json object, read_json_object(path));
    const Fields fields(object, path.string());
    TROUPE_TRY(auto config, quantization_of(fields));
    if (!config.method.empty()) return config;
    const nlohmann::json* const text = fields.find({"text_config"});
    if (text != nullptr && text->is_object()) {
      TROUPE_TRY(config, quantization_of(Fields(*text, path.string())));
      if (!config.method.empty()) return config;
    }
  }
  for (const SideFile& file : side_files) {
    const std::filesystem::path beside = folder / file.name;
    if (!std::filesystem::exists(beside, ignored)) continue;
    TROUPE_TRY(const nlohmann::json object, read_json_object(beside));
    TROUPE_TRY(const Fields fields, Fields(object, beside.string()).nested(file.key));
    return read_as(file.method, fields);
  }
  return QuantizationConfig();
}

}  // namespace troupe
