#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "models/text/jinja/template.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Turns the messages of a chat into the one text that a model was trained with, by the template
/// that came with the model. render() may be called from any thread.
class ChatTemplate {
 public:
  /// Reads chat_template.jinja in the model's `folder`, or else "chat_template" in its
  /// tokenizer_config.json, which is a text or a list of {name, template}. bos_token, eos_token and
  /// the other special tokens of tokenizer_config.json become variables of the template. Errors:
  /// not_found if the model has no chat template; corrupt_data, unsupported.
  static Result<ChatTemplate> load(const std::filesystem::path& folder);

  /// The text of `messages`, an array of objects {role, content, ...}, at least one.
  /// `extra_variables`, an object or null, are seen by the template as they are, e.g. "tools" or
  /// "enable_thinking"; "tools" selects the template named tool_use if there is one. Errors:
  /// invalid_argument (no messages, null content where the template needs text, an exception the
  /// template raises), with the template's line; unsupported; resource_exhausted.
  Result<std::string> render(const nlohmann::ordered_json& messages, bool add_generation_prompt,
                             const nlohmann::ordered_json& extra_variables) const;

  /// The same. The keys of an nlohmann::json are sorted, so a template that prints an object, e.g.
  /// the schema of a tool, prints them in another order than the file has: prefer the above.
  Result<std::string> render(const nlohmann::json& messages, bool add_generation_prompt,
                             const nlohmann::json& extra_variables) const;

 private:
  Result<> add_templates(const nlohmann::json& config, const std::string& path);

  std::map<std::string, jinja::Template> templates_;  // one of them is called "default"
  std::map<std::string, std::string> special_tokens_;
};

}  // namespace troupe
