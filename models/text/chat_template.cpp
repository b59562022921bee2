#include "models/text/chat_template.hpp"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "models/json/json_file.hpp"
#include "models/text/tokenizer_config.hpp"

namespace troupe {
namespace {

/// Published templates have up to 30 KB.
constexpr std::size_t max_template_bytes = 1 << 20;

}  // namespace

Result<ChatTemplate> ChatTemplate::load(const std::filesystem::path& folder) {
  const auto template_path = folder / "chat_template.jinja";
  const auto config_path = folder / "tokenizer_config.json";
  ChatTemplate chat;
  std::error_code ignored;
  TROUPE_TRY(const auto config, text::TokenizerConfig::load(folder));
  chat.special_tokens_ = nlohmann::ordered_json::object();
  for (const auto& [role, token] : config.special_tokens) {
    if (role.empty()) {
      chat.special_tokens_["additional_special_tokens"].push_back(token.content);
    } else {
      chat.special_tokens_[role] = token.content;
    }
  }
  if (std::filesystem::exists(template_path, ignored)) {
    TROUPE_TRY(const std::string source, read_text_file(template_path, max_template_bytes));
    chat.templates_.emplace("default", jinja::Template::parse(source, template_path.string()));
    return chat;
  }
  if (config.chat_template.is_null()) {
    return fail(
        ErrorCode::not_found,
        "{} has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json)",
        folder.string());
  }
  TROUPE_CHECK(chat.add_templates(config.chat_template, config_path.string()));
  return chat;
}

Result<> ChatTemplate::add_templates(const nlohmann::json& value, const std::string& path) {
  if (value.is_string()) {
    templates_.emplace("default",
                       jinja::Template::parse(value.get<std::string>(), path + " chat_template"));
    return {};
  }
  for (const auto& entry : value) {
    if (!entry.is_object() || !entry.value("name", nlohmann::json()).is_string() ||
        !entry.value("template", nlohmann::json()).is_string())
      return fail(ErrorCode::corrupt_data,
                  "{}: chat_template is neither a text nor a list of {{name, template}}", path);
    const auto name = entry["name"].get<std::string>();
    templates_.insert_or_assign(
        name, jinja::Template::parse(entry["template"].get<std::string>(),
                                     fmt::format("{} chat_template {}", path, name)));
  }
  if (!templates_.contains("default"))
    return fail(ErrorCode::not_found, "{}: no chat_template is called 'default'", path);
  return {};
}

const Error* ChatTemplate::problem() const {
  const auto& usual = templates_.at("default");
  return usual.ok() ? nullptr : &usual.error();
}

Result<std::string> ChatTemplate::render(const nlohmann::ordered_json& messages,
                                         bool add_generation_prompt,
                                         const nlohmann::ordered_json& extra_variables,
                                         std::int64_t now) const {
  if (!messages.is_array() || messages.empty())
    return fail(ErrorCode::invalid_argument, "messages must be an array of at least one message");
  for (const auto& message : messages) {
    if (!message.is_object())
      return fail(ErrorCode::invalid_argument, "a message must be an object, not {}",
                  message.type_name());
  }
  if (!extra_variables.is_null() && !extra_variables.is_object())
    return fail(ErrorCode::invalid_argument, "template variables must be an object");
  nlohmann::ordered_json variables = {{"messages", messages},
                                      {"tools", nullptr},
                                      {"documents", nullptr},
                                      {"add_generation_prompt", add_generation_prompt}};
  variables.update(special_tokens_);
  if (extra_variables.is_object()) variables.update(extra_variables);
  const auto with_tools = templates_.find("tool_use");
  const bool uses_tools = with_tools != templates_.end() && !variables["tools"].is_null();
  const auto& chosen = uses_tools ? with_tools->second : templates_.at("default");
  if (!chosen.ok()) return chosen.error();
  return chosen->render(variables, now);
}

}  // namespace troupe
