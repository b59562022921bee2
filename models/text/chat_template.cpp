#include "models/text/chat_template.hpp"

#include <utility>

#include <nlohmann/json.hpp>

#include "models/text/json_file.hpp"

namespace troupe {
namespace {

constexpr const char* special_token_keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                              "pad_token", "cls_token", "mask_token"};

/// The special tokens of a tokenizer_config.json, which are texts or objects with "content".
nlohmann::ordered_json read_special_tokens(const nlohmann::json& config) {
  const auto text_of = [](const nlohmann::json& token) {
    return token.is_object() ? token.value("content", nlohmann::json()) : token;
  };
  auto tokens = nlohmann::ordered_json::object();
  for (const char* key : special_token_keys) {
    const auto found = config.find(key);
    if (found == config.end()) continue;
    if (const auto token = text_of(*found); token.is_string())
      tokens[key] = token.get<std::string>();
  }
  const auto more = config.find("additional_special_tokens");
  if (more == config.end() || !more->is_array()) return tokens;
  auto& list = tokens["additional_special_tokens"] = nlohmann::ordered_json::array();
  for (const auto& item : *more)
    if (const auto token = text_of(item); token.is_string())
      list.push_back(token.get<std::string>());
  return tokens;
}

}  // namespace

Result<ChatTemplate> ChatTemplate::load(const std::filesystem::path& folder) {
  const auto template_path = folder / "chat_template.jinja";
  const auto config_path = folder / "tokenizer_config.json";
  ChatTemplate chat;
  std::error_code ignored;
  nlohmann::json config = nlohmann::json::object();
  if (std::filesystem::exists(config_path, ignored)) {
    TROUPE_TRY(config, text::read_json_file(config_path));
    if (!config.is_object())
      return fail(ErrorCode::corrupt_data, "{} holds no object", config_path.string());
  }
  chat.special_tokens_ = read_special_tokens(config);
  if (std::filesystem::exists(template_path, ignored)) {
    TROUPE_TRY(const std::string source, text::read_text_file(template_path));
    chat.templates_.emplace("default", jinja::Template::parse(source, template_path.string()));
    return chat;
  }
  if (!config.contains("chat_template")) {
    return fail(
        ErrorCode::not_found,
        "{} has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json)",
        folder.string());
  }
  TROUPE_CHECK(chat.add_templates(config["chat_template"], config_path.string()));
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
