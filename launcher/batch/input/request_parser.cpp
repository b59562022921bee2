#include "launcher/batch/input/request_parser.hpp"

#include <nlohmann/json.hpp>

#include "launcher/batch/input/body_reader.hpp"
#include "launcher/batch/input/chat_fields.hpp"
#include "launcher/batch/input/json_input.hpp"
#include "launcher/batch/input/request_body.hpp"
#include "runtime/base/hash.hpp"

namespace troupe {
namespace {

using nlohmann::json;

const json* given(const json& object, std::string_view key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Refused read_custom_id(const json& line, std::string& custom_id) {
  const json* value = given(line, "custom_id");
  const auto refuse = [](std::string_view why) {
    return Refusal{line_error::missing_custom_id, fmt::format("custom_id: {}", why), "custom_id"};
  };
  if (value == nullptr) return refuse("missing");
  if (!value->is_string())
    return refuse(fmt::format("expected text, found {}", describe_json(*value)));
  custom_id = value->get_ref<const std::string&>();
  if (custom_id.empty()) return refuse("empty");
  return std::nullopt;
}

Refused read_envelope(const json& line, Endpoint& endpoint, const json** body) {
  const json* method = given(line, "method");
  if (method == nullptr || *method != "POST") {
    return Refusal{line_error::invalid_method,
                   fmt::format("method: expected \"POST\", found {}",
                               method == nullptr ? "nothing" : describe_json(*method)),
                   "method"};
  }
  const json* url = given(line, "url");
  if (url != nullptr && *url == "/v1/chat/completions") {
    endpoint = Endpoint::chat_completions;
  } else if (url != nullptr && *url == "/v1/completions") {
    endpoint = Endpoint::completions;
  } else {
    return Refusal{line_error::invalid_url,
                   fmt::format("url: expected /v1/chat/completions or /v1/completions, found {}",
                               url == nullptr ? "nothing" : describe_json(*url)),
                   "url"};
  }
  *body = given(line, "body");
  if (*body == nullptr) return Refusal{line_error::missing_field, "body: missing", "body"};
  if ((*body)->is_object()) return std::nullopt;
  return Refusal{line_error::invalid_value,
                 fmt::format("body: expected an object, found {}", describe_json(**body)), "body"};
}

Refused read_line(const json& line, std::string_view text, const ParseContext& context,
                  BatchRequest& out) {
  const json* body = nullptr;
  if (auto refused = read_envelope(line, out.header.endpoint, &body)) return refused;
  out.request.seed = derive_seed(context.job_seed, out.header.custom_id);
  if (auto refused = read_body(*body, context, out)) return refused;
  if (out.header.endpoint != Endpoint::chat_completions) return std::nullopt;
  return keep_template_values(text, *body, out.request);
}

}  // namespace

std::variant<BatchRequest, LineError> parse_line(std::string_view line, std::size_t line_number,
                                                 const ParseContext& context) {
  const auto error = [&](const Refusal& refusal, std::optional<std::string> custom_id = {}) {
    return LineError{line_number, std::string(refusal.code), refusal.message, std::move(custom_id),
                     refusal.param};
  };
  if (line.size() > max_line_bytes) {
    return error({line_error::line_too_long,
                  fmt::format("the line is longer than {} MiB", max_line_bytes >> 20)});
  }
  bool invalid_utf8 = false;
  auto parsed = parse_json(line, &invalid_utf8);
  if (!parsed) {
    return error({invalid_utf8 ? line_error::invalid_utf8 : line_error::invalid_json,
                  parsed.error().message});
  }
  if (!parsed->is_object()) {
    return error({line_error::invalid_json,
                  fmt::format("expected a JSON object, found {}", describe_json(*parsed))});
  }
  BatchRequest request;
  request.header.line = line_number;
  if (auto refused = read_custom_id(*parsed, request.header.custom_id)) return error(*refused);
  if (auto refused = read_line(*parsed, line, context, request)) {
    return error(*refused, request.header.custom_id);
  }
  return request;
}

std::uint64_t derive_seed(std::uint64_t job_seed, std::string_view custom_id) {
  return hash_128(custom_id, job_seed).first;
}

}  // namespace troupe
