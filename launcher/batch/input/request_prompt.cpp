#include <algorithm>
#include <array>
#include <limits>

#include <nlohmann/json.hpp>

#include "launcher/batch/input/body_reader.hpp"
#include "launcher/batch/input/chat_fields.hpp"
#include "launcher/batch/input/json_input.hpp"
#include "launcher/batch/input/request_body.hpp"
#include "launcher/batch/json_text.hpp"
#include "launcher/config/nearest.hpp"

namespace troupe {
namespace {

using nlohmann::json;

/// Reads the text of a message's content: a string, or parts of type text, joined by newlines.
Refused read_content(const json& content, std::size_t index, std::string& text) {
  if (content.is_string()) {
    text = content.get_ref<const std::string&>();
    return std::nullopt;
  }
  if (!content.is_array() || content.empty()) {
    return invalid("messages[{}].content: expected text or a list of text parts, found {}", index,
                   describe_json(content));
  }
  for (std::size_t part = 0; part < content.size(); ++part) {
    const json& item = content[part];
    const auto type = item.is_object() ? item.find("type") : item.end();
    if (!item.is_object() || type == item.end() || !type->is_string()) {
      return invalid("messages[{}].content[{}]: expected {{\"type\": \"text\", \"text\": ...}}",
                     index, part);
    }
    if (*type != "text") {
      return Refusal{line_error::unsupported,
                     fmt::format("messages[{}].content[{}]: parts of type {} are not in this "
                                 "version; it takes text",
                                 index, part, describe_json(*type))};
    }
    const auto words = item.find("text");
    if (words == item.end() || !words->is_string()) {
      return invalid("messages[{}].content[{}].text: expected text", index, part);
    }
    if (part > 0) text += '\n';
    text += words->get_ref<const std::string&>();
  }
  return std::nullopt;
}

Refused check_message_keys(const json& message, std::size_t index) {
  static constexpr std::array<std::string_view, 3> known = {"role", "content", "name"};
  static constexpr std::array<std::string_view, 3> for_template = {"tool_calls", "tool_call_id",
                                                                   "reasoning_content"};
  static constexpr std::array<std::string_view, 3> later = {"function_call", "refusal", "audio"};
  for (const auto& [key, value] : message.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    if (std::find(for_template.begin(), for_template.end(), key) != for_template.end()) {
      if (auto refused = check_tool_field(key, value, index)) return refused;
      continue;
    }
    if (value.is_null() || (value.is_array() && value.empty())) continue;
    if (std::find(later.begin(), later.end(), key) != later.end()) {
      return Refusal{line_error::unsupported,
                     fmt::format("messages[{}].{} is not in this version", index, key)};
    }
    const auto near = nearest(key, known);
    return Refusal{line_error::unknown_field,
                   fmt::format("messages[{}]: unknown field {}{}", index, describe_json(json(key)),
                               near.empty() ? "" : fmt::format("; did you mean {}?", near))};
  }
  return std::nullopt;
}

Refused read_message(const json& message, std::size_t index, std::string& out) {
  if (!message.is_object()) {
    return invalid("messages[{}]: expected an object, found {}", index, describe_json(message));
  }
  if (auto refused = check_message_keys(message, index)) return refused;
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string() || role->get_ref<const std::string&>().empty()) {
    return invalid("messages[{}].role: expected text such as \"user\", found {}", index,
                   role == message.end() ? "nothing" : describe_json(*role));
  }
  out += R"({"role":)";
  append_json_string(out, role->get_ref<const std::string&>());
  const auto content = message.find("content");
  const auto calls = message.find("tool_calls");
  const bool only_calls = calls != message.end() && !calls->empty();
  if (content != message.end() && !(only_calls && content->is_null())) {
    std::string text;
    if (auto refused = read_content(*content, index, text)) return refused;
    out += R"(,"content":)";
    append_json_string(out, text);
  } else if (content != message.end()) {
    out += R"(,"content":null)";
  } else if (!only_calls) {
    return invalid("messages[{}].content: expected text, found nothing", index);
  }
  if (const auto name = message.find("name"); name != message.end() && !name->is_null()) {
    if (!name->is_string()) {
      return invalid("messages[{}].name: expected text, found {}", index, describe_json(*name));
    }
    out += R"(,"name":)";
    append_json_string(out, name->get_ref<const std::string&>());
  }
  for (const char* key : {"tool_call_id", "reasoning_content"}) {
    const auto value = message.find(key);
    if (value == message.end() || value->is_null()) continue;
    out += fmt::format(",\"{}\":", key);
    append_json_string(out, value->get_ref<const std::string&>());
  }
  out += '}';
  return std::nullopt;
}

Refused read_token_ids(const json& ids, Request& request) {
  constexpr auto largest = std::numeric_limits<std::int32_t>::max();
  request.prompt_ids.reserve(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = json_integer(ids[i]);
    if (!id || *id < 0 || *id > largest) {
      return invalid("prompt[{}]: expected a token id, found {}", i, describe_json(ids[i]));
    }
    request.prompt_ids.push_back(static_cast<std::int32_t>(*id));
  }
  request.kind = PromptKind::token_ids;
  return std::nullopt;
}

}  // namespace

Refused read_messages(const json& messages, Request& request) {
  if (!messages.is_array()) {
    return invalid("messages: expected a list of messages, found {}", describe_json(messages));
  }
  if (messages.empty()) return invalid("messages: the list is empty; a chat needs a message");
  std::string out = "[";
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (i > 0) out += ',';
    if (auto refused = read_message(messages[i], i, out)) return refused;
  }
  out += ']';
  request.kind = PromptKind::messages;
  request.prompt = std::move(out);
  return std::nullopt;
}

Refused read_prompt(const json& prompt, Request& request) {
  if (prompt.is_string()) {
    request.kind = PromptKind::text;
    request.prompt = prompt.get_ref<const std::string&>();
    if (request.prompt.empty()) return invalid("prompt: the text is empty");
    return std::nullopt;
  }
  if (!prompt.is_array()) {
    return invalid("prompt: expected text or a list of token ids, found {}", describe_json(prompt));
  }
  if (prompt.empty()) return invalid("prompt: the list is empty");
  const json& first = prompt.front();
  if (first.is_string() || first.is_array()) {
    if (prompt.size() == 1 && (first.is_string() || (!first.empty() && first[0].is_number()))) {
      return read_prompt(first, request);
    }
    return invalid("prompt: a list of prompts; a line takes one prompt, so give each its own line");
  }
  return read_token_ids(prompt, request);
}

}  // namespace troupe
