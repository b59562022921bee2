#pragma once

#include <string_view>

#include "launcher/batch/input/body_reader.hpp"

namespace troupe {

/// Readers of the chat template's inputs besides the messages. They only check;
/// keep_template_values() takes the values.
FieldReader read_tools, read_documents, read_chat_template_kwargs, read_add_generation_prompt;

/// Checks the tool_calls, tool_call_id or reasoning_content of message `index`.
Refused check_tool_field(std::string_view name, const nlohmann::json& value, std::size_t index);

/// Puts into `request` the values of a chat's line that a template may print, with the keys of
/// their objects in the order of the line (which a parsed `body` has lost): tools, documents,
/// chat_template_kwargs, and the tool_calls of messages, whose arguments become objects as in vLLM.
/// `body` is the line's, accepted by read_body(). Does nothing if there are none.
Refused keep_template_values(std::string_view line, const nlohmann::json& body, Request& request);

}  // namespace troupe
