#include "models/config/model_config.hpp"

#include <algorithm>

#include "models/config/read_parts.hpp"
#include "models/json/json_file.hpp"

namespace troupe {

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
