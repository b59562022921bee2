#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "launcher/batch/input/request_parser.hpp"

namespace troupe {

/// Why a line is refused: one of line_error's codes and a message for the user.
struct Refusal {
  std::string_view code;
  std::string message;
  std::string param = {};  ///< the field concerned; empty: no single one
};

/// Reads a body for the endpoint in `out.header` into `out`; everything but custom_id, line and
/// seed. Returns nullopt on success.
std::optional<Refusal> read_body(const nlohmann::json& body, const ParseContext& context,
                                 BatchRequest& out);

/// Reads a chat's messages into `request.prompt`, a JSON array of {role, content[, name,
/// tool_call_id, reasoning_content]}; tool_calls are checked only.
std::optional<Refusal> read_messages(const nlohmann::json& messages, Request& request);

/// Reads a completion's prompt: a text, a list of token ids, or a list of one of these.
std::optional<Refusal> read_prompt(const nlohmann::json& prompt, Request& request);

}  // namespace troupe
