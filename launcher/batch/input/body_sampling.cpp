#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "launcher/batch/input/body_reader.hpp"
#include "launcher/batch/input/json_input.hpp"

namespace troupe {

using nlohmann::json;

Refused read_integer(std::string_view name, const json& value, std::int64_t least,
                     std::int64_t most, std::int64_t& out) {
  const auto integer = json_integer(value);
  if (!integer || *integer < least || *integer > most) {
    return invalid("{}: expected an integer from {} to {}, found {}", name, least, most,
                   describe_json(value));
  }
  out = *integer;
  return std::nullopt;
}

Refused read_boolean(std::string_view name, const json& value, bool& out) {
  if (!value.is_boolean()) {
    return invalid("{}: expected true or false, found {}", name, describe_json(value));
  }
  out = value.get<bool>();
  return std::nullopt;
}

namespace {

constexpr std::int64_t largest_i32 = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t max_stop_strings = 16;

Refused read_float(std::string_view name, const json& value, std::string_view expected,
                   bool (*allowed)(float), std::optional<float>& out) {
  if (value.is_number()) {
    const auto number = static_cast<float>(value.get<double>());
    if (std::isfinite(number) && allowed(number)) {
      out = number;
      return std::nullopt;
    }
  }
  return invalid("{}: expected {}, found {}", name, expected, describe_json(value));
}

std::optional<float> finite_float(const json& value) {
  if (!value.is_number()) return std::nullopt;
  const auto number = static_cast<float>(value.get<double>());
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

/// A penalty that is subtracted from logits: OpenAI's and vLLM's range.
Refused read_penalty(std::string_view name, const json& value, float& out) {
  const auto penalty = finite_float(value);
  if (!penalty || *penalty < -2 || *penalty > 2) {
    return invalid("{} must be in [-2, 2], got {}", name, describe_json(value));
  }
  out = *penalty;
  return std::nullopt;
}

Refused read_count(std::string_view name, const json& value, std::int64_t least, std::int64_t most,
                   std::int32_t& out) {
  const auto count = json_integer(value);
  if (!count || *count < least || *count > most) {
    return invalid("{} must be an integer from {} to {}, got {}", name, least, most,
                   describe_json(value));
  }
  out = static_cast<std::int32_t>(*count);
  return std::nullopt;
}

Refused read_ids(std::string_view name, const json& value, std::vector<std::int32_t>& out) {
  if (!value.is_array()) {
    return invalid("{}: expected a list of token ids, found {}", name, describe_json(value));
  }
  for (const json& item : value) {
    std::int64_t id = 0;
    if (auto refused = read_integer(fmt::format("{}[]", name), item, 0, largest_i32, id)) {
      return refused;
    }
    out.push_back(static_cast<std::int32_t>(id));
  }
  return std::nullopt;
}

Refused read_texts(std::string_view name, const json& value, std::vector<std::string>& out) {
  for (const json& item : value) {
    if (!item.is_string()) {
      return invalid("{} must be a list of strings, got {} in it", name, describe_json(item));
    }
    out.push_back(item.get_ref<const std::string&>());
    if (out.back().empty()) return invalid("{} must not contain an empty string", name);
  }
  return std::nullopt;
}

}  // namespace

Refused read_temperature(std::string_view name, const json& value, Body& body) {
  return read_float(
      name, value, "a number of 0 or more", [](float t) { return t >= 0; },
      body.out.request.temperature);
}

Refused read_top_p(std::string_view name, const json& value, Body& body) {
  return read_float(
      name, value, "a number above 0 and up to 1", [](float p) { return p > 0 && p <= 1; },
      body.out.request.top_p);
}

Refused read_min_p(std::string_view name, const json& value, Body& body) {
  return read_float(
      name, value, "a number from 0 to 1", [](float p) { return p >= 0 && p <= 1; },
      body.out.request.min_p);
}

Refused read_top_k(std::string_view name, const json& value, Body& body) {
  std::int64_t k = 0;
  if (auto refused = read_integer(name, value, -1, largest_i32, k)) return refused;
  body.out.request.top_k = static_cast<std::int32_t>(std::max<std::int64_t>(k, 0));
  return std::nullopt;
}

Refused read_seed(std::string_view name, const json& value, Body& body) {
  if (value.is_number_unsigned()) {  // the upper half of 64 bits does not fit an int64
    body.out.request.seed = value.get<std::uint64_t>();
    return std::nullopt;
  }
  using Limits = std::numeric_limits<std::int64_t>;
  std::int64_t seed = 0;
  if (auto refused = read_integer(name, value, Limits::min(), Limits::max(), seed)) return refused;
  body.out.request.seed = static_cast<std::uint64_t>(seed);
  return std::nullopt;
}

Refused read_repetition_penalty(std::string_view name, const json& value, Body& body) {
  const auto penalty = finite_float(value);
  if (!penalty || *penalty <= 0) {
    return invalid("{} must be greater than zero, got {}", name, describe_json(value));
  }
  body.out.request.repetition_penalty = penalty;
  return std::nullopt;
}

Refused read_frequency_penalty(std::string_view name, const json& value, Body& body) {
  return read_penalty(name, value, body.out.request.frequency_penalty);
}

Refused read_presence_penalty(std::string_view name, const json& value, Body& body) {
  return read_penalty(name, value, body.out.request.presence_penalty);
}

Refused read_logit_bias(std::string_view name, const json& value, Body& body) {
  if (!value.is_object()) {
    return invalid("{} must be an object of token ids and numbers, got {}", name,
                   describe_json(value));
  }
  std::map<std::int32_t, float> biases;  // "7" and "07" are one token
  for (const auto& [key, item] : value.items()) {
    std::int32_t token = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (error != std::errc() || end != key.data() + key.size() || token < 0) {
      return invalid("{}: every key must be a token id, got {}", name, describe_json(json(key)));
    }
    const auto bias = finite_float(item);
    if (!bias) {
      return invalid("{}: the bias of token {} must be a number, got {}", name, token,
                     describe_json(item));
    }
    biases[token] = std::clamp(*bias, -100.0F, 100.0F);  // as in vLLM
  }
  for (const auto& [token, bias] : biases) body.out.request.logit_bias.push_back({token, bias});
  return std::nullopt;
}

Refused read_allowed_token_ids(std::string_view name, const json& value, Body& body) {
  auto& ids = body.out.request.allowed_token_ids;
  if (auto refused = read_ids(name, value, ids)) return refused;
  if (ids.empty()) return invalid("{} must not be empty", name);
  return std::nullopt;
}

Refused read_bad_words(std::string_view name, const json& value, Body& body) {
  if (!value.is_array()) {
    return invalid("{} must be a list of strings, got {}", name, describe_json(value));
  }
  return read_texts(name, value, body.out.request.bad_words);
}

Refused read_stop(std::string_view name, const json& value, Body& body) {
  if (!value.is_array() && !value.is_string()) {
    return invalid("{} must be a string or a list of strings, got {}", name, describe_json(value));
  }
  const json list = value.is_string() ? json::array({value}) : value;
  if (list.size() > max_stop_strings) {
    return invalid("{} must have at most {} strings, got {}", name, max_stop_strings, list.size());
  }
  return read_texts(name, list, body.out.request.stop);
}

Refused read_stop_token_ids(std::string_view name, const json& value, Body& body) {
  return read_ids(name, value, body.out.request.stop_token_ids);
}

Refused read_min_tokens(std::string_view name, const json& value, Body& body) {
  return read_count(name, value, 0, largest_i32, body.out.request.min_tokens);
}

Refused read_n(std::string_view name, const json& value, Body& body) {
  return read_count(name, value, 1, max_choices, body.out.request.n);
}

Refused read_best_of(std::string_view name, const json& value, Body& body) {
  return read_count(name, value, 1, max_choices, body.best_of.emplace());
}

Refused read_length_penalty(std::string_view name, const json& value, Body& body) {
  const auto penalty = finite_float(value);
  // Beyond 10, a length to this power overflows.
  if (!penalty || *penalty < -10 || *penalty > 10) {
    return invalid("{} must be in [-10, 10], got {}", name, describe_json(value));
  }
  body.out.request.length_penalty = *penalty;
  return std::nullopt;
}

Refused read_priority(std::string_view name, const json& value, Body& body) {
  return read_count(name, value, std::numeric_limits<std::int32_t>::min(), largest_i32,
                    body.out.request.priority);
}

Refused read_deadline_ms(std::string_view name, const json& value, Body& body) {
  return read_count(name, value, 1, largest_i32, body.out.request.deadline_ms);
}

Refused settle_beam_search(const Body& body) {
  const Request& request = body.out.request;
  if (!request.use_beam_search) return std::nullopt;
  if (request.best_of > max_beam_width) {
    return invalid("use_beam_search: the width (best_of, else n) must be at most {}, got {}",
                   max_beam_width, request.best_of);
  }
  if (request.max_tokens == 0) return invalid("use_beam_search: max_tokens must be at least 1");
  const std::pair<std::string_view, bool> without[] = {
      {"repetition_penalty", request.repetition_penalty.value_or(1.0F) != 1.0F},
      {"frequency_penalty", request.frequency_penalty != 0.0F},
      {"presence_penalty", request.presence_penalty != 0.0F},
      {"logit_bias", !request.logit_bias.empty()},
      {"allowed_token_ids", !request.allowed_token_ids.empty()},
      {"bad_words", !request.bad_words.empty()},
      {"min_tokens", request.min_tokens > 0},
      {"stop", !request.stop.empty()},
      {"stop_token_ids", !request.stop_token_ids.empty()},
  };
  for (const auto& [name, is_given] : without) {
    if (is_given) return invalid("{} must not be given with use_beam_search", name);
  }
  return std::nullopt;
}

}  // namespace troupe
