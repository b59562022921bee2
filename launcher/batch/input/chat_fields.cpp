#include "launcher/batch/input/chat_fields.hpp"

#include <algorithm>
#include <array>

#include "launcher/batch/input/json_input.hpp"

namespace troupe {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// Limit because ordered objects find their keys by linear search.
constexpr std::size_t max_keys = 4096;

Refused check_objects(std::string_view name, const json& value) {
  if (!value.is_array()) {
    return invalid("{}: expected a list of objects, found {}", name, describe_json(value));
  }
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (value[i].is_object()) continue;
    return invalid("{}[{}]: expected an object, found {}", name, i, describe_json(value[i]));
  }
  return std::nullopt;
}

bool has_too_many_keys(const json& value) {
  if (value.is_object() && value.size() > max_keys) return true;
  return value.is_structured() && std::ranges::any_of(value, has_too_many_keys);
}

bool has_tool_calls(const json& message) {
  const auto calls = message.find("tool_calls");
  return calls != message.end() && calls->is_array() && !calls->empty();
}

bool is_given(const json& body, const char* name) {
  const auto value = body.find(name);
  return value != body.end() && !value->is_null();
}

/// Turns the arguments of a call into an object; OpenAI writes them as a text that holds JSON.
Refused parse_arguments(ordered_json& call, std::size_t message, std::size_t index) {
  if (!call.contains("function")) return std::nullopt;
  ordered_json& function = call["function"];
  ordered_json& arguments = function["arguments"];
  if (arguments.is_null() || arguments == "") {
    arguments = ordered_json::object();
  } else if (arguments.is_string()) {
    const std::string text = arguments.get<std::string>();
    bool invalid_utf8 = false;
    const auto checked = parse_json(text, &invalid_utf8);
    if (!checked || has_too_many_keys(*checked)) {
      return invalid("messages[{}].tool_calls[{}].function.arguments: expected JSON, found {}",
                     message, index, describe_json(json(text)));
    }
    arguments = ordered_json::parse(text);
  }
  return std::nullopt;
}

Refused keep_tool_calls(ordered_json& given, Request& request) {
  auto messages = ordered_json::parse(request.prompt);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (!given[i].contains("tool_calls") || given[i]["tool_calls"].is_null()) continue;
    ordered_json& calls = given[i]["tool_calls"];
    for (std::size_t call = 0; call < calls.size(); ++call) {
      if (auto refused = parse_arguments(calls[call], i, call)) return refused;
    }
    if (!calls.empty()) messages[i]["tool_calls"] = std::move(calls);
  }
  request.prompt = messages.dump();
  return std::nullopt;
}

}  // namespace

Refused read_tools(std::string_view name, const json& value, Body&) {
  return check_objects(name, value);
}

Refused read_documents(std::string_view name, const json& value, Body&) {
  return check_objects(name, value);
}

Refused read_chat_template_kwargs(std::string_view name, const json& value, Body&) {
  if (!value.is_object()) {
    return invalid("{}: expected an object, found {}", name, describe_json(value));
  }
  constexpr std::array<const char*, 4> taken = {"messages", "chat_template", "tokenize",
                                                "continue_final_message"};
  for (const char* key : taken) {
    if (value.contains(key)) return invalid("{}: {} cannot be given here", name, key);
  }
  return std::nullopt;
}

Refused read_add_generation_prompt(std::string_view name, const json& value, Body&) {
  bool ignored = false;
  return read_boolean(name, value, ignored);
}

Refused check_tool_field(std::string_view name, const json& value, std::size_t index) {
  const std::string where = fmt::format("messages[{}].{}", index, name);
  if (name != "tool_calls") {
    if (value.is_string() || value.is_null()) return std::nullopt;
    return invalid("{}: expected text, found {}", where, describe_json(value));
  }
  if (value.is_null()) return std::nullopt;
  if (auto refused = check_objects(where, value)) return refused;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const auto function = value[i].find("function");
    if (function == value[i].end() || !function->is_object()) {
      return invalid("{}[{}].function: expected an object with name and arguments", where, i);
    }
  }
  return std::nullopt;
}

Refused keep_template_values(std::string_view line, const json& body, Request& request) {
  constexpr std::array<const char*, 4> variables = {"tools", "documents", "add_generation_prompt",
                                                    "chat_template_kwargs"};
  const bool has_variables =
      std::ranges::any_of(variables, [&](const char* name) { return is_given(body, name); });
  if (!has_variables && std::ranges::none_of(body["messages"], has_tool_calls)) return std::nullopt;
  if (has_too_many_keys(body)) return invalid("an object of more than {} keys", max_keys);
  auto ordered = ordered_json::parse(line)["body"];
  ordered_json kept = ordered_json::object();
  for (const char* name : {"tools", "documents", "add_generation_prompt"}) {
    const bool is_empty_list = is_given(body, name) && body[name].is_array() && body[name].empty();
    if (is_given(body, name) && !is_empty_list) kept[name] = std::move(ordered[name]);
  }
  if (is_given(body, "chat_template_kwargs")) kept.update(ordered["chat_template_kwargs"]);
  if (!kept.empty()) request.template_variables = kept.dump();
  return keep_tool_calls(ordered["messages"], request);
}

}  // namespace troupe
