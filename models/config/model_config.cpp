#include "models/config/model_config.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include <fmt/ranges.h>

#include "models/config/read_parts.hpp"
#include "models/json/json_file.hpp"

namespace troupe {

namespace {

struct NamedArchitecture {
  Architecture architecture;
  std::string_view name;
  std::string_view model_type;
};

constexpr std::array known_architectures = {
    NamedArchitecture{Architecture::llama, "LlamaForCausalLM", "llama"},
    NamedArchitecture{Architecture::mistral, "MistralForCausalLM", "mistral"},
    NamedArchitecture{Architecture::mixtral, "MixtralForCausalLM", "mixtral"},
    NamedArchitecture{Architecture::qwen2, "Qwen2ForCausalLM", "qwen2"},
    NamedArchitecture{Architecture::qwen3, "Qwen3ForCausalLM", "qwen3"},
    NamedArchitecture{Architecture::qwen3_moe, "Qwen3MoeForCausalLM", "qwen3_moe"},
    NamedArchitecture{Architecture::deepseek_v3, "DeepseekV3ForCausalLM", "deepseek_v3"},
};

constexpr std::int64_t max_token_id = std::numeric_limits<std::int32_t>::max();

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
  return fields.unsupported("dtype", name, "bfloat16, float16, float32");
}

/// Refuses features that the layers do not compute, so that no model runs and answers wrongly.
Result<void> refuse_unsupported(const Fields& fields) {
  TROUPE_TRY(const std::string activation, fields.string_or({"hidden_act"}, "silu"));
  if (activation != "silu") return fields.unsupported("hidden_act", activation, "silu");
  if (fields.find({"quantization_config"}) != nullptr) {
    return fields.unsupported("quantization_config", "(present)", "bf16, fp16 and fp32 weights");
  }
  return {};
}

Result<void> read_biases(const Fields& fields, ModelConfig& config) {
  TROUPE_TRY(const bool stated, fields.boolean_or({"attention_bias"}, false));
  switch (config.architecture) {
    case Architecture::llama: {  // the only one whose MLP has mlp_bias in transformers
      TROUPE_TRY(config.mlp_bias, fields.boolean_or({"mlp_bias"}, false));
      config.qkv_bias = config.output_bias = stated;
      break;
    }
    case Architecture::qwen3:
    case Architecture::qwen3_moe:
      config.qkv_bias = config.output_bias = stated;
      break;
    case Architecture::qwen2:
      config.qkv_bias = true;
      break;
    case Architecture::deepseek_v3:
      if (stated) return fields.unsupported("attention_bias", "true", "false");
      break;
    case Architecture::mistral:
    case Architecture::mixtral:
      break;
  }
  return {};
}

/// transformers' default for an absent key.
std::int64_t default_head_dim(const ModelConfig& config) {
  const bool is_qwen3 =
      config.architecture == Architecture::qwen3 || config.architecture == Architecture::qwen3_moe;
  return is_qwen3 ? 128 : config.hidden_size / config.heads;
}

Result<void> read_heads(const Fields& fields, ModelConfig& config) {
  TROUPE_TRY(config.heads, fields.integer({"num_attention_heads"}, 1, max_heads));
  if (config.architecture == Architecture::deepseek_v3) return read_latent(fields, config);
  TROUPE_TRY(config.kv_heads,
             fields.integer_or({"num_key_value_heads"}, 1, config.heads, config.heads));
  if (config.heads % config.kv_heads != 0) {
    return fail(ErrorCode::corrupt_data,
                "{}: num_key_value_heads {} does not divide num_attention_heads {}", fields.where(),
                config.kv_heads, config.heads);
  }
  TROUPE_TRY(config.head_dim,
             fields.integer_or({"head_dim"}, 2, max_width, default_head_dim(config)));
  if (config.head_dim < 2 || config.head_dim % 2 != 0) {
    return fail(ErrorCode::corrupt_data, "{}: head_dim: expected an even number, found {}",
                fields.where(), config.head_dim);
  }
  return {};
}

Result<void> read_sizes(const Fields& fields, ModelConfig& config) {
  TROUPE_TRY(config.hidden_size, fields.integer({"hidden_size"}, 1, max_width));
  TROUPE_TRY(config.layers, fields.integer({"num_hidden_layers"}, 1, max_layers));
  TROUPE_CHECK(read_heads(fields, config));
  TROUPE_TRY(config.intermediate_size, fields.integer({"intermediate_size"}, 1, max_width));
  TROUPE_TRY(config.vocab_size, fields.integer({"vocab_size"}, 1, max_vocabulary));
  TROUPE_TRY(const double epsilon, fields.number_or({"rms_norm_eps"}, 0.0, 1.0, 1e-6));
  config.rms_norm_eps = static_cast<float>(epsilon);
  TROUPE_TRY(const std::int64_t positions,
             fields.integer({"max_position_embeddings"}, 1, max_positions));
  TROUPE_TRY(config.rope, read_rope(fields, positions));
  config.max_position_embeddings = longest_sequence(config.rope, positions);
  return {};
}

bool has_experts(Architecture architecture) {
  return architecture == Architecture::mixtral || architecture == Architecture::qwen3_moe ||
         architecture == Architecture::deepseek_v3;
}

Result<std::vector<std::int32_t>> read_token_ids(const Fields& fields, Fields::Spellings keys) {
  TROUPE_TRY(const auto ids, fields.integers(keys, 0, max_token_id));
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
  TROUPE_CHECK(read_biases(fields, config));
  TROUPE_TRY(config.windows, read_windows(fields, config));
  TROUPE_TRY(config.dtype, read_dtype(fields));
  TROUPE_TRY(config.tie_word_embeddings, fields.boolean_or({"tie_word_embeddings"}, false));
  TROUPE_TRY(config.eos_token_ids, read_token_ids(fields, {"eos_token_id"}));
  if (has_experts(config.architecture)) {
    TROUPE_TRY(config.moe, read_moe(fields, config));
  }
  return config;
}

bool ModelConfig::is_sparse(std::int64_t layer) const {
  if (!moe) return false;
  return (layer + 1) % moe->sparse_step == 0 &&
         std::ranges::find(moe->dense_layers, layer) == moe->dense_layers.end();
}

std::int64_t ModelConfig::window_of(std::int64_t layer) const {
  return windows.empty() ? 0 : windows[static_cast<std::size_t>(layer)];
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
  TROUPE_TRY(defaults.top_k, fields.optional_integer({"top_k"}, -1, max_token_id));
  TROUPE_TRY(defaults.top_p, fields.optional_number({"top_p"}, 0.0, 1.0));
  TROUPE_TRY(defaults.min_p, fields.optional_number({"min_p"}, 0.0, 1.0));
  TROUPE_TRY(defaults.max_new_tokens, fields.optional_integer({"max_new_tokens"}, 1, max_token_id));
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
