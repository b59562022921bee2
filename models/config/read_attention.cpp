#include <algorithm>

#include "models/config/read_parts.hpp"

namespace troupe {

namespace {

constexpr std::int64_t default_window = 4096;  // transformers' default for an absent key

/// The file's window, 0 if the file says that there is none.
Result<std::int64_t> stated_window(const Fields& fields, const ModelConfig& config) {
  switch (config.architecture) {
    case Architecture::mistral:
      return fields.integer_or({"sliding_window"}, 1, max_positions,
                               fields.mentions("sliding_window") ? 0 : default_window);
    case Architecture::mixtral:
      return fields.integer_or({"sliding_window"}, 1, max_positions, 0);
    case Architecture::qwen2:
    case Architecture::qwen3:
    case Architecture::qwen3_moe: {
      TROUPE_TRY(const bool used, fields.boolean_or({"use_sliding_window"}, false));
      if (!used) return 0;
      return fields.integer_or({"sliding_window"}, 1, max_positions,
                               fields.mentions("sliding_window") ? 0 : default_window);
    }
    case Architecture::llama:
    case Architecture::deepseek_v3:
      break;
  }
  return 0;
}

/// Reads which layers have a window from config.json's list of layer types.
Result<std::vector<bool>> read_layer_types(const Fields& fields, const nlohmann::json& types,
                                           std::int64_t layers) {
  if (!types.is_array() || static_cast<std::int64_t>(types.size()) != layers) {
    return fail(ErrorCode::corrupt_data, "{}: layer_types: expected a list of {} names",
                fields.where(), layers);
  }
  std::vector<bool> windowed;
  for (const nlohmann::json& type : types) {
    const std::string name = type.is_string() ? type.get<std::string>() : type.type_name();
    if (name != "full_attention" && name != "sliding_attention") {
      return fields.unsupported("layer type", name, "full_attention, sliding_attention");
    }
    windowed.push_back(name == "sliding_attention");
  }
  return windowed;
}

/// Derives which layers have a window if the list is absent.
Result<std::vector<bool>> implied_layer_types(const Fields& fields, const ModelConfig& config) {
  std::vector<bool> windowed(static_cast<std::size_t>(config.layers), true);
  if (config.architecture != Architecture::qwen2 && config.architecture != Architecture::qwen3) {
    return windowed;
  }
  TROUPE_TRY(const std::int64_t full, fields.integer_or({"max_window_layers"}, 0, max_layers, 28));
  std::fill_n(windowed.begin(), std::min(full, config.layers), false);
  return windowed;
}

}  // namespace

Result<std::vector<std::int64_t>> read_windows(const Fields& fields, const ModelConfig& config) {
  TROUPE_TRY(const std::int64_t window, stated_window(fields, config));
  const nlohmann::json* types = fields.find({"layer_types"});
  std::vector<bool> windowed;
  if (types != nullptr) {
    TROUPE_TRY(windowed, read_layer_types(fields, *types, config.layers));
  } else {
    TROUPE_TRY(windowed, implied_layer_types(fields, config));
  }
  const bool any = std::ranges::find(windowed, true) != windowed.end();
  if (types != nullptr && any && window == 0) {
    return fail(ErrorCode::corrupt_data,
                "{}: layer_types has sliding_attention, but no sliding_window is in use",
                fields.where());
  }
  // A window as long as the longest sequence hides nothing.
  if (!any || window == 0 || window >= config.max_position_embeddings) {
    return std::vector<std::int64_t>();
  }
  std::vector<std::int64_t> windows;
  for (const bool has : windowed) windows.push_back(has ? window : 0);
  return windows;
}

Result<void> read_latent(const Fields& fields, ModelConfig& config) {
  LatentConfig latent;
  if (!fields.mentions("q_lora_rank")) {
    return fail(ErrorCode::corrupt_data, "{}: missing key q_lora_rank", fields.where());
  }
  TROUPE_TRY(latent.query_rank, fields.integer_or({"q_lora_rank"}, 1, max_width, 0));
  TROUPE_TRY(latent.rank, fields.integer({"kv_lora_rank"}, 1, max_width));
  TROUPE_TRY(latent.unrotated_dim, fields.integer({"qk_nope_head_dim"}, 1, max_width));
  TROUPE_TRY(latent.rotated_dim, fields.integer({"qk_rope_head_dim"}, 2, max_width));
  TROUPE_TRY(latent.value_dim, fields.integer({"v_head_dim"}, 1, max_width));
  TROUPE_TRY(latent.interleaved_rope, fields.boolean_or({"rope_interleave"}, true));
  if (latent.rotated_dim % 2 != 0) {
    return fail(ErrorCode::corrupt_data, "{}: qk_rope_head_dim: expected an even number, found {}",
                fields.where(), latent.rotated_dim);
  }
  config.kv_heads = 1;
  config.head_dim = latent.unrotated_dim + latent.rotated_dim;
  config.latent = latent;
  return {};
}

}  // namespace troupe
