#pragma once

#include <string>

#include "actors/engine/request.hpp"

namespace troupe {

/// Appends a chat choice's logprobs: {"content": [{token, logprob, bytes, top_logprobs}, ...]}, one
/// entry per generated token. bytes are those of the token's text.
void append_chat_logprobs(std::string& out, const Completion& completion);

/// Appends a completion choice's logprobs: {tokens, token_logprobs, top_logprobs, text_offset}, as
/// format_answer tells it.
void append_completion_logprobs(std::string& out, const Completion& completion, bool echo);

}  // namespace troupe
