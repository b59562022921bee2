#pragma once

#include <string>

#include "actors/api/request.hpp"

namespace troupe {

/// Appends a chat choice's logprobs: {"content": [{token, logprob, bytes, top_logprobs}, ...]}, one
/// entry per generated token. `bytes` are the token's own: those of tokens that share a character
/// join to it, while the `token` of each is U+FFFD.
void append_chat_logprobs(std::string& out, const Choice& choice);

/// Appends a completion choice's logprobs: {tokens, token_logprobs, top_logprobs, text_offset}, as
/// described at format_answer. With `echo` the prompt's tokens come first.
void append_completion_logprobs(std::string& out, const Completion& completion,
                                const Choice& choice, bool echo);

/// Appends the scores of the prompt in vLLM's form: a list with null for the first token, then for
/// each an object {id: {logprob, rank, decoded_token}} of the token itself and the best ones.
void append_prompt_logprobs(std::string& out, const Completion& completion);

}  // namespace troupe
