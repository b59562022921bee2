#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "models/families/family.hpp"
#include "tests/golden/support/golden_model.hpp"
#include "tests/support/checkpoint_folder.hpp"

namespace troupe {

/// Loads a config.json of this text.
inline Result<ModelConfig> load_text(std::string_view text) {
  const golden::TemporaryFolder folder;
  folder.write("config.json", text);
  return load_model_config(folder.path());
}

/// Loads the config.json of the golden model `name` after `change`.
inline Result<ModelConfig> load_changed(const std::string& name,
                                        const std::function<void(nlohmann::json&)>& change) {
  const std::string text = golden::file_bytes(golden::data_folder() / name / "config.json");
  nlohmann::json object = nlohmann::json::parse(text);
  change(object);
  return load_text(object.dump());
}

}  // namespace troupe
