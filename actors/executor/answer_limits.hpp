#pragma once

#include <cstddef>
#include <cstdint>

#include "actors/engine/request.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

// How large an answer may be. It is held by the executor while it is made, travels in one message,
// and becomes one line of a file, each of which must stay below a GiB.

/// Tokens that all choices of a request may generate together.
inline constexpr std::int64_t max_answer_tokens = std::int64_t{1} << 25;
/// Log-probabilities in an answer, those of alternatives too. One takes some 20 bytes in a message
/// and 60 to 100 in a line.
inline constexpr std::int64_t max_answer_scores = std::int64_t{1} << 23;
/// Bytes of a Completion in a message. Texts of tokens may be long, so counts do not bound it.
inline constexpr std::size_t max_completion_bytes = std::size_t{1} << 29;

/// Whether the answer to `request`, whose choices generate up to `max_tokens` each, stays within
/// these limits. Errors: invalid_argument, with what to lower.
Result<void> check_answer_size(const Request& request, std::int64_t prompt_tokens,
                               std::int64_t max_tokens);

/// The bytes that a completion takes in a message, to a few for each list.
std::size_t message_bytes(const Completion& completion);

}  // namespace troupe
