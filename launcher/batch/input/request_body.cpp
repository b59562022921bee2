#include "launcher/batch/input/request_body.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <vector>

#include <nlohmann/json.hpp>

#include "launcher/batch/input/body_reader.hpp"
#include "launcher/batch/input/chat_fields.hpp"
#include "launcher/batch/input/json_input.hpp"
#include "launcher/config/cluster_config.hpp"
#include "launcher/config/nearest.hpp"

namespace troupe {
namespace {

using nlohmann::json;

constexpr std::int64_t max_token_limit = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t max_logprobs = 20;

Refused read_max_tokens(std::string_view name, const json& value, Body& body) {
  return read_integer(name, value, 0, max_token_limit, body.max_tokens.emplace());
}

Refused read_max_completion_tokens(std::string_view name, const json& value, Body& body) {
  return read_integer(name, value, 0, max_token_limit, body.max_completion_tokens.emplace());
}

Refused read_ignore_eos(std::string_view name, const json& value, Body& body) {
  return read_boolean(name, value, body.out.request.ignore_eos);
}

Refused read_include_stop(std::string_view name, const json& value, Body& body) {
  return read_boolean(name, value, body.out.request.include_stop_str_in_output);
}

Refused read_skip_special_tokens(std::string_view name, const json& value, Body& body) {
  return read_boolean(name, value, body.out.request.skip_special_tokens);
}

Refused read_add_special_tokens(std::string_view name, const json& value, Body& body) {
  return read_boolean(name, value, body.out.request.add_special_tokens.emplace());
}

Refused read_use_beam_search(std::string_view name, const json& value, Body& body) {
  return read_boolean(name, value, body.out.request.use_beam_search);
}

Refused read_prompt_logprobs(std::string_view name, const json& value, Body& body) {
  std::int64_t count = 0;
  if (auto refused = read_integer(name, value, 0, max_logprobs, count)) return refused;
  body.out.header.prompt_logprobs = true;
  body.out.request.prompt_logprobs = static_cast<std::int32_t>(count);
  return std::nullopt;
}

Refused read_return_token_ids(std::string_view name, const json& value, Body& body) {
  return read_boolean(name, value, body.out.header.return_token_ids);
}

Refused read_truncate(std::string_view name, const json& value, Body& body) {
  constexpr std::int64_t what_fits = -1;
  std::int64_t tokens = 0;
  if (auto refused = read_integer(name, value, what_fits, max_token_limit, tokens)) return refused;
  if (tokens == 0) return invalid("{}: expected -1 or 1 and more, found 0", name);
  body.out.request.truncate_prompt_tokens = static_cast<std::int32_t>(tokens);
  return std::nullopt;
}

Refused read_echo(std::string_view name, const json& value, Body& body) {
  auto refused = read_boolean(name, value, body.out.header.echo);
  body.out.request.echo = body.out.header.echo;
  return refused;
}

Refused read_chat_logprobs(std::string_view name, const json& value, Body& body) {
  return read_boolean(name, value, body.chat_logprobs);
}

Refused read_top_logprobs(std::string_view name, const json& value, Body& body) {
  return read_integer(name, value, 0, max_logprobs, body.top_logprobs.emplace());
}

Refused read_completion_logprobs(std::string_view name, const json& value, Body& body) {
  return read_top_logprobs(name, value, body);
}

Refused read_messages_field(std::string_view, const json& value, Body& body) {
  body.has_prompt = true;
  return read_messages(value, body.out.request);
}

Refused read_prompt_field(std::string_view, const json& value, Body& body) {
  body.has_prompt = true;
  return read_prompt(value, body.out.request);
}

Refused ignore(std::string_view, const json&, Body&) { return std::nullopt; }

constexpr unsigned chat = 1;
constexpr unsigned completions = 2;
constexpr unsigned both = chat | completions;

/// A field that this version reads, or whose value has no effect on an answer here.
struct Field {
  std::string_view name;
  unsigned endpoints;
  FieldReader* read;
};

constexpr auto fields = std::to_array<Field>({
    {"model", both, ignore},  // read before all others
    {"messages", chat, read_messages_field},
    {"prompt", completions, read_prompt_field},
    {"tools", chat, read_tools},
    {"documents", chat, read_documents},
    {"chat_template_kwargs", chat, read_chat_template_kwargs},
    {"add_generation_prompt", chat, read_add_generation_prompt},
    {"max_tokens", both, read_max_tokens},
    {"max_completion_tokens", chat, read_max_completion_tokens},
    {"temperature", both, read_temperature},
    {"top_p", both, read_top_p},
    {"top_k", both, read_top_k},
    {"min_p", both, read_min_p},
    {"seed", both, read_seed},
    {"repetition_penalty", both, read_repetition_penalty},
    {"frequency_penalty", both, read_frequency_penalty},
    {"presence_penalty", both, read_presence_penalty},
    {"logit_bias", both, read_logit_bias},
    {"allowed_token_ids", both, read_allowed_token_ids},
    {"bad_words", both, read_bad_words},
    {"stop", both, read_stop},
    {"stop_token_ids", both, read_stop_token_ids},
    {"min_tokens", both, read_min_tokens},
    {"ignore_eos", both, read_ignore_eos},
    {"include_stop_str_in_output", both, read_include_stop},
    {"skip_special_tokens", both, read_skip_special_tokens},
    {"add_special_tokens", both, read_add_special_tokens},
    {"n", both, read_n},
    {"best_of", both, read_best_of},
    {"use_beam_search", both, read_use_beam_search},
    {"length_penalty", both, read_length_penalty},
    {"priority", both, read_priority},
    {"deadline_ms", both, read_deadline_ms},
    {"prompt_logprobs", both, read_prompt_logprobs},
    {"return_token_ids", both, read_return_token_ids},
    {"truncate_prompt_tokens", both, read_truncate},
    {"echo", completions, read_echo},
    {"logprobs", chat, read_chat_logprobs},
    {"top_logprobs", chat, read_top_logprobs},
    {"logprobs", completions, read_completion_logprobs},
    {"user", both, ignore},
    {"metadata", both, ignore},
    {"store", both, ignore},
    {"service_tier", both, ignore},
    {"safety_identifier", both, ignore},
    {"prompt_cache_key", both, ignore},
    {"parallel_tool_calls", both, ignore},
});

/// A field that OpenAI or vLLM know but this version does not support, with the values that have no
/// effect (JSON, separated by spaces; none: only null).
struct LaterField {
  std::string_view name;
  unsigned endpoints;
  std::string_view neutral;
};

constexpr auto later_fields = std::to_array<LaterField>({
    {"stream", both, "false"},
    {"stream_options", both, ""},
    {"logits_processors", both, "[]"},
    {"suffix", completions, "\"\""},
    {"echo", chat, "false"},
    {"response_format", both, R"({"type":"text"})"},
    {"structured_outputs", both, ""},
    {"guided_json", both, ""},
    {"guided_regex", both, ""},
    {"guided_choice", both, ""},
    {"guided_grammar", both, ""},
    {"tool_choice", chat, R"("none" "auto")"},
    {"functions", chat, "[]"},
    {"function_call", chat, R"("none" "auto")"},
    {"modalities", chat, R"(["text"])"},
    {"audio", chat, ""},
    {"prediction", chat, ""},
    {"reasoning_effort", chat, ""},
    {"verbosity", chat, ""},
    {"web_search_options", chat, ""},
    {"chat_template", chat, ""},
    {"continue_final_message", chat, "false"},
    {"spaces_between_special_tokens", both, "true"},
});

bool is_neutral(const LaterField& field, const json& value) {
  std::string_view rest = field.neutral;
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    if (value == json::parse(word)) return true;
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
  }
  return false;
}

Refused unknown_field(const std::string& name, unsigned endpoint) {
  std::vector<std::string_view> here;
  const auto consider = [&](const auto& table) -> bool {
    bool elsewhere = false;
    for (const auto& field : table) {
      if ((field.endpoints & endpoint) != 0) here.push_back(field.name);
      elsewhere = elsewhere || field.name == name;
    }
    return elsewhere;
  };
  const bool known =
      static_cast<int>(consider(fields)) + static_cast<int>(consider(later_fields)) > 0;
  const std::string shown = describe_json(json(name));
  if (known) {
    return Refusal{line_error::unknown_field,
                   fmt::format("{} is a field of the other url, not of {}", shown,
                               endpoint == chat ? "/v1/chat/completions" : "/v1/completions")};
  }
  const auto near = nearest(name, here);
  return Refusal{line_error::unknown_field,
                 fmt::format("unknown field {}{}", shown,
                             near.empty() ? "" : fmt::format("; did you mean {}?", near))};
}

Refused read_field(const std::string& name, const json& value, unsigned endpoint, Body& body) {
  for (const Field& field : fields) {
    if (field.name != name || (field.endpoints & endpoint) == 0) continue;
    return value.is_null() ? std::nullopt : about(name, field.read(name, value, body));
  }
  for (const LaterField& field : later_fields) {
    if (field.name != name || (field.endpoints & endpoint) == 0) continue;
    if (value.is_null() || is_neutral(field, value)) return std::nullopt;
    return Refusal{line_error::unsupported,
                   fmt::format("{}: {} is not in this version", name, describe_json(value)), name};
  }
  return about(name, unknown_field(name, endpoint));
}

Refused read_model(const json& body, const ParseContext& context, std::string& model) {
  const auto given = body.find("model");
  if (given == body.end() || given->is_null()) {
    model = context.served_model_names.empty() ? "" : context.served_model_names.front();
    return std::nullopt;
  }
  if (!given->is_string()) {
    return invalid("model: expected text, found {}", describe_json(*given));
  }
  model = given->get_ref<const std::string&>();
  const auto& served = context.served_model_names;
  const std::string_view without_owner = std::string_view(model).substr(model.rfind('/') + 1);
  const auto names_it = [&](const std::string& name) {
    return name == model || name == without_owner || name == any_model_name;
  };
  if (std::ranges::any_of(served, names_it)) return std::nullopt;
  return Refusal{line_error::model_not_found,
                 fmt::format("model: {} is not served here; this job serves {}",
                             describe_json(*given), fmt::join(served, ", "))};
}

/// Checks and settings that need several fields.
Refused settle(Body& body, Endpoint endpoint) {
  Request& request = body.out.request;
  RequestHeader& header = body.out.header;
  const bool is_chat = endpoint == Endpoint::chat_completions;
  if (is_chat) {
    if (!body.chat_logprobs && body.top_logprobs.value_or(0) > 0) {
      return about("top_logprobs", invalid("top_logprobs: needs logprobs: true"));
    }
    header.logprobs = body.chat_logprobs;
  } else {
    header.logprobs = body.top_logprobs.has_value();
  }
  if (header.logprobs) {
    request.logprobs = static_cast<std::int32_t>(body.top_logprobs.value_or(0));
    if (header.echo && !header.prompt_logprobs) request.prompt_logprobs = request.logprobs;
  }
  const bool renamed = body.max_completion_tokens.has_value();
  request.max_tokens = renamed ? body.max_completion_tokens : body.max_tokens;
  if (request.max_tokens == 0 && !(header.echo && header.logprobs)) {
    const char* name = renamed ? "max_completion_tokens" : "max_tokens";
    return about(
        name,
        invalid("{}: 0 asks for nothing; only a completion with echo and logprobs may", name));
  }
  constexpr std::int64_t openai_default_tokens = 16;
  if (!is_chat && !request.max_tokens) request.max_tokens = openai_default_tokens;
  if (request.max_tokens && request.min_tokens > *request.max_tokens) {
    return about("min_tokens",
                 invalid("min_tokens must be less than or equal to max_tokens={}, got {}",
                         *request.max_tokens, request.min_tokens));
  }
  request.best_of = body.best_of.value_or(request.n);
  if (request.best_of < request.n) {
    return about("best_of",
                 invalid("best_of must be greater than or equal to n, got n={} and best_of={}",
                         request.n, request.best_of));
  }
  if (auto refused = settle_beam_search(body)) return about("use_beam_search", refused);
  if (body.has_prompt) return std::nullopt;
  const char* prompt = is_chat ? "messages" : "prompt";
  return Refusal{line_error::missing_field, fmt::format("{}: missing", prompt), prompt};
}

}  // namespace

Refused read_body(const json& body, const ParseContext& context, BatchRequest& out) {
  const Endpoint endpoint = out.header.endpoint;
  if (auto refused = read_model(body, context, out.header.model)) return about("model", refused);
  Body state{
      .out = out, .max_tokens = {}, .max_completion_tokens = {}, .top_logprobs = {}, .best_of = {}};
  const unsigned mask = endpoint == Endpoint::chat_completions ? chat : completions;
  for (const auto& [name, value] : body.items()) {
    if (auto refused = read_field(name, value, mask, state)) return refused;
  }
  return settle(state, endpoint);
}

}  // namespace troupe
