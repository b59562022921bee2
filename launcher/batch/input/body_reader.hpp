#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "launcher/batch/input/request_body.hpp"
#include "launcher/batch/input/request_parser.hpp"

namespace troupe {

/// nullopt: no refusal.
using Refused = std::optional<Refusal>;

template <class... Args>
Refused invalid(fmt::format_string<Args...> format, Args&&... args) {
  return Refusal{line_error::invalid_value, fmt::format(format, std::forward<Args>(args)...)};
}

/// Returns the refusal, about the field `param` if it names none yet.
inline Refused about(std::string_view param, Refused refused) {
  if (refused && refused->param.empty()) refused->param = param;
  return refused;
}

/// The parsed fields of a body, before they are checked together.
struct Body {
  BatchRequest& out;
  std::optional<std::int64_t> max_tokens;
  std::optional<std::int64_t> max_completion_tokens;
  std::optional<std::int64_t> top_logprobs;
  std::optional<std::int32_t> best_of;
  bool chat_logprobs = false;
  bool has_prompt = false;
};

/// Read a value of one kind; the refusal names the field, what is expected and what was found.
Refused read_integer(std::string_view name, const nlohmann::json& value, std::int64_t least,
                     std::int64_t most, std::int64_t& out);
Refused read_boolean(std::string_view name, const nlohmann::json& value, bool& out);

/// Readers of the sampling fields (value is not null).
using FieldReader = Refused(std::string_view name, const nlohmann::json& value, Body& body);
FieldReader read_temperature, read_top_p, read_min_p, read_top_k, read_seed;
FieldReader read_repetition_penalty, read_frequency_penalty, read_presence_penalty;
FieldReader read_logit_bias, read_allowed_token_ids, read_bad_words;

/// Readers of the fields that decide when an answer ends and how many answers there are.
FieldReader read_stop, read_stop_token_ids, read_min_tokens, read_n, read_best_of,
    read_length_penalty, read_priority, read_deadline_ms;

/// Checks and completes a beam search request; body.out.request.n and best_of are set.
Refused settle_beam_search(const Body& body);

}  // namespace troupe
