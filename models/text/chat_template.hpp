#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "models/text/jinja/template.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Renders the messages of a chat as the text form that a model was trained with, using the model's
/// chat template. render() may be called from any thread.
class ChatTemplate {
 public:
  /// Reads chat_template.jinja in the model's `folder`, or else "chat_template" in its
  /// tokenizer_config.json, which is a text or a list of {name, template}. The special tokens of
  /// tokenizer_config.json become variables of the template. An unusable template is no error here:
  /// render() returns its error. Errors: not_found if the model has no chat template; corrupt_data.
  static Result<ChatTemplate> load(const std::filesystem::path& folder);

  /// Why the default template cannot be used; null if it can.
  const Error* problem() const;

  /// Renders `messages`, an array of objects {role, content, ...}, at least one. The template sees
  /// `extra_variables`, an object or null, as they are, e.g. "tools" or "enable_thinking"; they
  /// replace existing variables, e.g. "add_generation_prompt"; "tools" selects the template named
  /// tool_use if there is one. `now`, in seconds since 1970, is the time that the template sees (in
  /// UTC). Errors: invalid_argument (no messages, null content where the template needs text, an
  /// exception the template raises), with the template's line; unsupported; resource_exhausted.
  Result<std::string> render(const nlohmann::ordered_json& messages, bool add_generation_prompt,
                             const nlohmann::ordered_json& extra_variables, std::int64_t now) const;

 private:
  Result<> add_templates(const nlohmann::json& config, const std::string& path);

  std::map<std::string, Result<jinja::Template>> templates_;  // one of them is named "default"
  nlohmann::ordered_json special_tokens_;                     // an object
};

}  // namespace troupe
