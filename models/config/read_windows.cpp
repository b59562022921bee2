#include <algorithm>

#include "models/config/read_parts.hpp"

namespace troupe {

namespace {

/// The file's window, 0 if the file says that there is none.
Result<std::int64_t> stated_window(const Fields& fields, const ConfigRules& rules) {
  if (!rules.windows) return 0;
  if (rules.windows->needs_use_sliding_window) {
    TROUPE_TRY(const bool used, fields.boolean_or({"use_sliding_window"}, false));
    if (!used) return 0;
  }
  // A key that is present with null says that there is no window.
  return fields.integer_or({"sliding_window"}, 1, max_positions,
                           fields.mentions("sliding_window") ? 0 : rules.windows->absent);
}

/// Reads which layers have a window from config.json's list of layer types.
Result<std::vector<bool>> read_layer_types(const Fields& fields, const ConfigRules& rules,
                                           const nlohmann::json& types, std::int64_t layers) {
  if (!types.is_array() || static_cast<std::int64_t>(types.size()) != layers) {
    return fail(ErrorCode::corrupt_data, "{}: layer_types: expected a list of {} names",
                fields.where(), layers);
  }
  std::vector<bool> windowed;
  for (const nlohmann::json& type : types) {
    const std::string name = type.is_string() ? type.get<std::string>() : type.type_name();
    if (name != rules.full_layer_type && name != "sliding_attention") {
      return fields.unsupported("layer type", name,
                                fmt::format("{}, sliding_attention", rules.full_layer_type));
    }
    windowed.push_back(name == "sliding_attention");
  }
  return windowed;
}

/// Derives which layers have a window if the list is absent.
Result<std::vector<bool>> implied_layer_types(const Fields& fields, const ConfigRules& rules,
                                              std::int64_t layers) {
  std::vector<bool> windowed(static_cast<std::size_t>(layers), true);
  if (rules.windows && rules.windows->pattern > 0) {
    TROUPE_TRY(const std::int64_t pattern,
               fields.integer_or({"sliding_window_pattern", "_sliding_window_pattern"}, 1,
                                 max_layers, rules.windows->pattern));
    for (std::int64_t i = 0; i < layers; ++i) {
      windowed[static_cast<std::size_t>(i)] = (i + 1) % pattern != 0;
    }
    return windowed;
  }
  if (!rules.windows || !rules.windows->max_window_layers) return windowed;
  TROUPE_TRY(const std::int64_t full, fields.integer_or({"max_window_layers"}, 0, max_layers,
                                                        *rules.windows->max_window_layers));
  std::fill_n(windowed.begin(), std::min(full, layers), false);
  return windowed;
}

}  // namespace

Result<std::vector<std::int64_t>> read_windows(const Fields& fields, const ConfigRules& rules,
                                               const ModelConfig& config) {
  TROUPE_TRY(const std::int64_t window, stated_window(fields, rules));
  const nlohmann::json* types = fields.find({"layer_types"});
  std::vector<bool> windowed;
  if (types != nullptr) {
    TROUPE_TRY(windowed, read_layer_types(fields, rules, *types, config.layers));
  } else {
    TROUPE_TRY(windowed, implied_layer_types(fields, rules, config.layers));
  }
  const bool any = std::ranges::find(windowed, true) != windowed.end();
  if (types != nullptr && any && window == 0) {
    return fail(ErrorCode::corrupt_data,
                "{}: layer_types has sliding_attention, but no sliding_window is in use",
                fields.where());
  }
  // A window as long as the longest sequence hides nothing; but the layer may have a rope of its
  // own.
  const bool hides = window < config.max_position_embeddings || config.window_rope;
  if (!any || window == 0 || !hides) {
    return std::vector<std::int64_t>();
  }
  std::vector<std::int64_t> windows;
  for (const bool has : windowed) windows.push_back(has ? window : 0);
  return windows;
}

}  // namespace troupe
