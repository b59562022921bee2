#include "models/families/family.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "models/config/read_config.hpp"
#include "models/families/registry.hpp"
#include "models/json/json_file.hpp"
#include "runtime/base/invariant.hpp"

namespace troupe {

namespace {

constexpr std::array all_families = {
    &llama_family,       &mistral_family,      &mixtral_family,   &qwen2_family,
    &qwen2_moe_family,   &qwen3_family,        &qwen3_moe_family, &deepseek_v2_family,
    &deepseek_v3_family, &deepseek_v32_family, &gemma2_family,    &gemma3_family,
    &gemma3_text_family, &gpt_oss_family,      &phi3_family,      &olmo2_family,
    &granite_family,     &glm_family,          &glm4_family,      &glm4_moe_family,
    &command_r_family,   &starcoder2_family,   &falcon_family,
};

}  // namespace

std::span<const Family* const> families() { return all_families; }

const Family& family_of(const ModelConfig& config) {
  const auto found = std::ranges::find_if(all_families, [&](const Family* family) {
    return family->config.architecture == config.architecture;
  });
  require(found != all_families.end(), "the architecture of a model is a family's");
  return **found;
}

std::span<const WeightRule> weight_rules_of(const ModelConfig& config) {
  const Family& family = family_of(config);
  return family.choose_weights == nullptr ? family.weights : family.choose_weights(config);
}

Result<ModelConfig> load_model_config(const std::filesystem::path& folder) {
  std::error_code status;
  if (std::filesystem::is_regular_file(folder, status)) {
    return fail(
        ErrorCode::invalid_argument,
        "{}: a file; a model is the folder that it is in, with config.json (and of GGUF the "
        "tokenizer.json of the model that it was made of) beside it",
        folder.string());
  }
  const std::filesystem::path path = folder / "config.json";
  TROUPE_TRY(const nlohmann::json object, read_json_object(path));
  const Fields fields(object, path.string());
  TROUPE_TRY(const std::string name, read_architecture(fields));
  std::vector<std::string_view> known;
  for (const Family* family : all_families) {
    const ConfigRules& rules = family->config;
    if (name == rules.architecture || name == rules.model_type) return read_config(fields, rules);
    known.push_back(rules.architecture);
  }
  return fail(ErrorCode::unsupported, "{}: unknown architecture \"{}\"; known are {}",
              fields.where(), name, fmt::join(known, ", "));
}

}  // namespace troupe
