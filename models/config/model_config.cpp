#include "models/config/model_config.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include <fmt/ranges.h>

#include "models/config/fields.hpp"
#include "models/config/json_file.hpp"

namespace troupe {

namespace {

struct NamedArchitecture {
  Architecture architecture;
  std::string_view name;
  std::string_view model_type;
};

constexpr std::array known_architectures = {
    NamedArchitecture{Architecture::llama, "LlamaForCausalLM", "llama"},
    NamedArchitecture{Architecture::qwen3, "Qwen3ForCausalLM", "qwen3"},
    NamedArchitecture{Architecture::qwen3_moe, "Qwen3MoeForCausalLM", "qwen3_moe"},
};

// Above any model known, and far below what could overflow a product of two in 64 bits.
constexpr std::int64_t most_width = 1 << 20;
constexpr std::int64_t most_layers = 1 << 12;
constexpr std::int64_t most_heads = 1 << 14;
constexpr std::int64_t most_experts = 1 << 14;
constexpr std::int64_t most_vocabulary = 1 << 24;
constexpr std::int64_t most_positions = 1 << 28;
constexpr std::int64_t most_token_id = std::numeric_limits<std::int32_t>::max();

Error unsupported(const Fields& fields, std::string_view key, std::string_view found,
                  std::string_view supported) {
  return fail(ErrorCode::unsupported, "{}: {} {} is not supported by this version ({})",
              fields.where(), key, found, supported);
}

Result<Architecture> read_architecture(const Fields& fields) {
  std::string name;
  const nlohmann::json* listed = fields.find({"architectures"});
  if (listed != nullptr && listed->is_array() && !listed->empty() && listed->front().is_string()) {
    name = listed->front().get<std::string>();
  }
  if (name.empty()) {
    TROUPE_TRY(name, fields.string_or({"model_type"}, ""));
  }
  std::vector<std::string_view> names;
  for (const NamedArchitecture& known : known_architectures) {
    if (name == known.name || name == known.model_type) return known.architecture;
    names.push_back(known.name);
  }
  if (name.empty()) {
    return fail(ErrorCode::corrupt_data, "{}: missing key architectures", fields.where());
  }
  return fail(ErrorCode::unsupported, "{}: unknown architecture \"{}\"; known are {}",
              fields.where(), name, fmt::join(names, ", "));
}

Result<DType> read_dtype(const Fields& fields) {
  TROUPE_TRY(const std::string name, fields.string_or({"dtype", "torch_dtype"}, "bfloat16"));
  if (name == "bfloat16") return DType::bf16;
  if (name == "float16") return DType::f16;
  if (name == "float32") return DType::f32;
  return unsupported(fields, "dtype", name, "bfloat16, float16, float32");
}

Result<Llama3RopeScaling> read_llama3(const Fields& fields) {
  constexpr double most = 1e9;
  Llama3RopeScaling scaling;
  TROUPE_TRY(scaling.factor, fields.number_or({"factor"}, 1.0, most, scaling.factor));
  TROUPE_TRY(scaling.low_factor,
             fields.number_or({"low_freq_factor"}, 1e-3, most, scaling.low_factor));
  TROUPE_TRY(scaling.high_factor,
             fields.number_or({"high_freq_factor"}, 1e-3, most, scaling.high_factor));
  TROUPE_TRY(scaling.original_positions, fields.number_or({"original_max_position_embeddings"}, 1.0,
                                                          most, scaling.original_positions));
  if (scaling.high_factor <= scaling.low_factor) {
    return fail(ErrorCode::corrupt_data,
                "{}: high_freq_factor: expected more than low_freq_factor {}, found {}",
                fields.where(), scaling.low_factor, scaling.high_factor);
  }
  return scaling;
}

Result<RopeConfig> read_rope(const Fields& fields) {
  RopeConfig rope;
  // transformers 4 has rope_theta beside rope_scaling, 5 has both inside rope_parameters.
  TROUPE_TRY(rope.theta, fields.number_or({"rope_theta"}, 1.0, 1e12, rope.theta));
  const nlohmann::json* parameters = fields.find({"rope_parameters", "rope_scaling"});
  if (parameters == nullptr) return rope;
  if (!parameters->is_object()) {
    return fail(ErrorCode::corrupt_data, "{}: rope parameters: expected an object, found {}",
                fields.where(), parameters->type_name());
  }
  const Fields inner(*parameters, fields.where());
  TROUPE_TRY(const std::string type, inner.string_or({"rope_type", "type"}, "default"));
  if (type == "llama3") {
    TROUPE_TRY(rope.llama3, read_llama3(inner));
  } else if (type != "default") {
    return unsupported(fields, "rope_type", type, "default, llama3");
  }
  TROUPE_TRY(const double part, inner.number_or({"partial_rotary_factor"}, 0.0, 1.0, 1.0));
  if (part != 1.0) return unsupported(fields, "partial_rotary_factor", fmt::to_string(part), "1");
  TROUPE_TRY(rope.theta, inner.number_or({"rope_theta"}, 1.0, 1e12, rope.theta));
  return rope;
}

/// Refuses what the layers do not compute, so that no model runs and answers wrongly.
Result<void> refuse_unsupported(const Fields& fields) {
  TROUPE_TRY(const std::string activation, fields.string_or({"hidden_act"}, "silu"));
  if (activation != "silu") return unsupported(fields, "hidden_act", activation, "silu");
  TROUPE_TRY(const bool bias, fields.boolean_or({"attention_bias"}, false));
  if (bias) return unsupported(fields, "attention_bias", "true", "false");
  TROUPE_TRY(const bool mlp_bias, fields.boolean_or({"mlp_bias"}, false));
  if (mlp_bias) return unsupported(fields, "mlp_bias", "true", "false");
  if (fields.find({"quantization_config"}) != nullptr) {
    return unsupported(fields, "quantization_config", "(present)", "bf16, fp16 and fp32 weights");
  }
  TROUPE_TRY(const bool window, fields.boolean_or({"use_sliding_window"}, false));
  const bool sized = fields.find({"sliding_window"}) != nullptr;
  if (window && sized) return unsupported(fields, "use_sliding_window", "true", "full attention");
  const nlohmann::json* types = fields.find({"layer_types"});
  if (types == nullptr || !types->is_array()) return {};
  for (const nlohmann::json& type : *types) {
    if (type.is_string() && type != "full_attention") {
      return unsupported(fields, "layer type", type.get<std::string>(), "full_attention");
    }
  }
  return {};
}

Result<MoeConfig> read_moe(const Fields& fields, std::int64_t layers) {
  MoeConfig moe;
  TROUPE_TRY(moe.experts, fields.integer({"num_local_experts", "num_experts"}, 1, most_experts));
  TROUPE_TRY(moe.top_k, fields.integer({"num_experts_per_tok"}, 1, moe.experts));
  TROUPE_TRY(moe.intermediate_size, fields.integer({"moe_intermediate_size"}, 1, most_width));
  TROUPE_TRY(moe.normalize_top_k, fields.boolean_or({"norm_topk_prob"}, false));
  TROUPE_TRY(moe.sparse_step, fields.integer_or({"decoder_sparse_step"}, 1, most_layers, 1));
  TROUPE_TRY(moe.dense_layers, fields.integers({"mlp_only_layers"}, 0, layers - 1));
  return moe;
}

Result<void> read_sizes(const Fields& fields, ModelConfig& config) {
  TROUPE_TRY(config.hidden_size, fields.integer({"hidden_size"}, 1, most_width));
  TROUPE_TRY(config.layers, fields.integer({"num_hidden_layers"}, 1, most_layers));
  TROUPE_TRY(config.heads, fields.integer({"num_attention_heads"}, 1, most_heads));
  TROUPE_TRY(config.kv_heads,
             fields.integer_or({"num_key_value_heads"}, 1, config.heads, config.heads));
  if (config.heads % config.kv_heads != 0) {
    return fail(ErrorCode::corrupt_data,
                "{}: num_key_value_heads {} does not divide num_attention_heads {}", fields.where(),
                config.kv_heads, config.heads);
  }
  // transformers' defaults where the key is absent.
  const std::int64_t default_head_dim = config.architecture == Architecture::llama
                                            ? config.hidden_size / config.heads
                                            : std::int64_t{128};
  TROUPE_TRY(config.head_dim, fields.integer_or({"head_dim"}, 2, most_width, default_head_dim));
  if (config.head_dim < 2 || config.head_dim % 2 != 0) {
    return fail(ErrorCode::corrupt_data, "{}: head_dim: expected an even number, found {}",
                fields.where(), config.head_dim);
  }
  TROUPE_TRY(config.intermediate_size, fields.integer({"intermediate_size"}, 1, most_width));
  TROUPE_TRY(config.vocab_size, fields.integer({"vocab_size"}, 1, most_vocabulary));
  TROUPE_TRY(config.max_position_embeddings,
             fields.integer({"max_position_embeddings"}, 1, most_positions));
  TROUPE_TRY(const double epsilon, fields.number_or({"rms_norm_eps"}, 0.0, 1.0, 1e-6));
  config.rms_norm_eps = static_cast<float>(epsilon);
  return {};
}

Result<std::vector<std::int32_t>> read_token_ids(const Fields& fields, Fields::Spellings keys) {
  TROUPE_TRY(const auto ids, fields.integers(keys, 0, most_token_id));
  return std::vector<std::int32_t>(ids.begin(), ids.end());
}

}  // namespace

std::string_view to_string(Architecture architecture) {
  for (const NamedArchitecture& known : known_architectures) {
    if (known.architecture == architecture) return known.name;
  }
  return "unknown";
}

Result<ModelConfig> ModelConfig::load(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  TROUPE_TRY(const nlohmann::json object, read_json_object(path));
  const Fields fields(object, path.string());

  ModelConfig config;
  TROUPE_TRY(config.architecture, read_architecture(fields));
  TROUPE_CHECK(refuse_unsupported(fields));
  TROUPE_CHECK(read_sizes(fields, config));
  TROUPE_TRY(config.dtype, read_dtype(fields));
  TROUPE_TRY(config.rope, read_rope(fields));
  TROUPE_TRY(config.tie_word_embeddings, fields.boolean_or({"tie_word_embeddings"}, false));
  TROUPE_TRY(config.eos_token_ids, read_token_ids(fields, {"eos_token_id"}));
  if (config.architecture == Architecture::qwen3_moe) {
    TROUPE_TRY(config.moe, read_moe(fields, config.layers));
  }
  return config;
}

bool ModelConfig::is_sparse(std::int64_t layer) const {
  if (!moe) return false;
  return (layer + 1) % moe->sparse_step == 0 &&
         std::ranges::find(moe->dense_layers, layer) == moe->dense_layers.end();
}

Result<GenerationDefaults> GenerationDefaults::load(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "generation_config.json";
  GenerationDefaults defaults;
  std::error_code status;
  if (!std::filesystem::exists(path, status)) return defaults;
  TROUPE_TRY(const nlohmann::json object, read_json_object(path));
  const Fields fields(object, path.string());
  TROUPE_TRY(defaults.eos_token_ids, read_token_ids(fields, {"eos_token_id"}));
  TROUPE_TRY(defaults.temperature, fields.optional_number({"temperature"}, 0.0, 1e6));
  TROUPE_TRY(defaults.top_k, fields.optional_integer({"top_k"}, -1, most_token_id));
  TROUPE_TRY(defaults.top_p, fields.optional_number({"top_p"}, 0.0, 1.0));
  TROUPE_TRY(defaults.min_p, fields.optional_number({"min_p"}, 0.0, 1.0));
  TROUPE_TRY(defaults.repetition_penalty, fields.optional_number({"repetition_penalty"}, 0.0, 1e6));
  return defaults;
}

std::vector<std::int32_t> eos_token_ids(const ModelConfig& config,
                                        const GenerationDefaults& defaults) {
  std::vector<std::int32_t> ids = config.eos_token_ids;
  ids.insert(ids.end(), defaults.eos_token_ids.begin(), defaults.eos_token_ids.end());
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace troupe
