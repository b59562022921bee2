#include "models/config/read_config.hpp"

#include "models/config/quantization.hpp"
#include "models/config/read_parts.hpp"

namespace troupe {

namespace {

Result<DType> read_dtype(const Fields& fields) {
  TROUPE_TRY(const std::string name, fields.string_or({"dtype", "torch_dtype"}, "bfloat16"));
  if (name == "bfloat16") return DType::bf16;
  if (name == "float16") return DType::f16;
  if (name == "float32") return DType::f32;
  return fields.unsupported("dtype", name, "bfloat16, float16, float32");
}

/// Refuses weights of other formats than this version decodes.
Result<void> check_quantization(const Fields& fields) {
  TROUPE_TRY([[maybe_unused]] const auto read, quantization_of(fields));
  return {};
}

Result<Activation> read_activation(const Fields& fields, const ConfigRules& rules) {
  const Fields::Spellings keys = {"hidden_activation", "hidden_act", "activation"};
  TROUPE_TRY(const std::string name, fields.string_or(keys, rules.default_activation));
  if (rules.gated_mlp) {
    if (name == "silu") return Activation::silu_gated;
    if (name == "gelu_pytorch_tanh") return Activation::gelu_tanh_gated;
    return fields.unsupported(fields.spelling(keys), name, "silu, gelu_pytorch_tanh");
  }
  if (name == "gelu") return Activation::gelu;
  if (name == "gelu_pytorch_tanh") return Activation::gelu_tanh;
  return fields.unsupported(fields.spelling(keys), name, "gelu, gelu_pytorch_tanh");
}

Result<void> read_biases(const Fields& fields, const ConfigRules& rules, ModelConfig& config) {
  if (rules.reads_mlp_bias) {
    TROUPE_TRY(config.mlp_bias, fields.boolean_or({"mlp_bias"}, false));
  }
  TROUPE_TRY(const bool stated, fields.boolean_or({rules.bias_key}, rules.biased_by_default));
  switch (rules.attention_bias) {
    case AttentionBias::none:
      break;
    case AttentionBias::as_stated:
      config.qkv_bias = config.output_bias = stated;
      break;
    case AttentionBias::stated_qkv:
      config.qkv_bias = stated;
      break;
    case AttentionBias::always_qkv:
      config.qkv_bias = true;
      break;
    case AttentionBias::refused:
      if (stated) return fields.unsupported("attention_bias", "true", "false");
      break;
  }
  return {};
}

/// An integer that must be there unless `absent` is above 0.
Result<std::int64_t> integer(const Fields& fields, std::string_view key, std::int64_t most,
                             std::int64_t absent) {
  return absent > 0 ? fields.integer_or({key}, 1, most, absent) : fields.integer({key}, 1, most);
}

Result<void> read_heads(const Fields& fields, const ConfigRules& rules, ModelConfig& config) {
  TROUPE_TRY(config.heads, integer(fields, "num_attention_heads", max_heads, rules.default_heads));
  if (rules.read_heads != nullptr) return rules.read_heads(fields, config);
  const bool by_default = rules.default_kv_heads > 0 && !fields.mentions("num_key_value_heads");
  TROUPE_TRY(config.kv_heads,
             fields.integer_or({"num_key_value_heads"}, 1, config.heads,
                               by_default ? rules.default_kv_heads : config.heads));
  if (config.heads % config.kv_heads != 0) {
    return fail(ErrorCode::corrupt_data,
                "{}: num_key_value_heads {} does not divide num_attention_heads {}", fields.where(),
                config.kv_heads, config.heads);
  }
  const std::int64_t absent =
      rules.default_head_dim > 0 ? rules.default_head_dim : config.hidden_size / config.heads;
  TROUPE_TRY(config.head_dim, fields.integer_or({"head_dim"}, 2, max_width, absent));
  if (config.head_dim < 2 || config.head_dim % 2 != 0) {
    return fail(ErrorCode::corrupt_data, "{}: head_dim: expected an even number, found {}",
                fields.where(), config.head_dim);
  }
  return {};
}

Result<std::int64_t> read_intermediate_size(const Fields& fields, const ConfigRules& rules,
                                            const ModelConfig& config) {
  const Fields::Spellings keys = {"intermediate_size", "ffn_hidden_size"};
  if (!rules.quadruple_mlp) return fields.integer(keys, 1, max_width);
  return fields.integer_or(keys, 1, max_width, 4 * config.hidden_size);
}

Result<void> read_sizes(const Fields& fields, const ConfigRules& rules, ModelConfig& config) {
  TROUPE_TRY(config.hidden_size, fields.integer({"hidden_size"}, 1, max_width));
  TROUPE_TRY(config.layers, fields.integer({"num_hidden_layers"}, 1, max_layers));
  TROUPE_CHECK(read_heads(fields, rules, config));
  TROUPE_TRY(config.intermediate_size, read_intermediate_size(fields, rules, config));
  TROUPE_TRY(config.vocab_size, integer(fields, "vocab_size", max_vocabulary, rules.default_vocab));
  TROUPE_TRY(const double epsilon, fields.number_or({"rms_norm_eps", "layer_norm_eps",
                                                     "norm_epsilon", "layer_norm_epsilon"},
                                                    0.0, 1.0, double{rules.norm.eps}));
  config.norm = rules.norm;
  config.norm.eps = static_cast<float>(epsilon);
  TROUPE_TRY(const std::int64_t positions,
             integer(fields, "max_position_embeddings", max_positions, rules.positions));
  TROUPE_CHECK(read_ropes(fields, rules, positions, config));
  config.max_position_embeddings =
      rules.positions_are_stretched ? positions : longest_sequence(config.rope, positions);
  return {};
}

}  // namespace

Result<std::string> read_architecture(const Fields& fields) {
  const nlohmann::json* listed = fields.find({"architectures"});
  if (listed != nullptr && listed->is_array() && !listed->empty() && listed->front().is_string()) {
    return listed->front().get<std::string>();
  }
  TROUPE_TRY(std::string name, fields.string_or({"model_type"}, ""));
  if (name.empty()) {
    return fail(ErrorCode::corrupt_data, "{}: missing key architectures", fields.where());
  }
  return name;
}

Result<ModelConfig> read_config(const Fields& file, const ConfigRules& rules) {
  TROUPE_TRY(const Fields fields, file.nested(rules.nested_in));
  ModelConfig config;
  config.architecture = rules.architecture;
  config.form = rules.form;
  config.query_key_norm = rules.query_key_norm;
  TROUPE_CHECK(check_quantization(fields));
  TROUPE_CHECK(check_quantization(file));
  TROUPE_TRY(config.activation, read_activation(fields, rules));
  TROUPE_CHECK(read_sizes(fields, rules, config));
  TROUPE_CHECK(read_biases(fields, rules, config));
  TROUPE_TRY(config.windows, read_windows(fields, rules, config));
  TROUPE_TRY(config.dtype, read_dtype(fields.find({"dtype", "torch_dtype"}) ? fields : file));
  TROUPE_TRY(config.tie_word_embeddings,
             fields.boolean_or({"tie_word_embeddings"}, rules.tied_by_default));
  TROUPE_TRY(config.eos_token_ids,
             read_token_ids(fields.find({"eos_token_id"}) ? fields : file, {"eos_token_id"}));
  if (rules.read_own != nullptr) TROUPE_CHECK(rules.read_own(fields, config));
  return config;
}

Result<std::vector<std::int32_t>> read_token_ids(const Fields& fields, Fields::Spellings keys) {
  TROUPE_TRY(const auto ids, fields.integers(keys, 0, max_token_id));
  return std::vector<std::int32_t>(ids.begin(), ids.end());
}

}  // namespace troupe
