#pragma once

#include <cstddef>
#include <cstdint>

#include "actors/api/request.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

// Limits on the size of an answer. The executor holds it while it is made; it travels in one
// message and becomes one line of a file, each of which must stay below a GiB.

/// The most tokens that all choices of a request may generate together.
inline constexpr std::int64_t max_answer_tokens = std::int64_t{1} << 25;
/// The most log-probabilities in an answer, alternatives included. One takes some 20 bytes in a
/// message and 60 to 100 in a line.
inline constexpr std::int64_t max_answer_scores = std::int64_t{1} << 23;
/// The most bytes of a Completion in a message. Texts of tokens may be long, so counts do not bound
/// it.
inline constexpr std::size_t max_completion_bytes = std::size_t{1} << 29;

/// Checks that the answer to `request`, whose choices generate up to `max_tokens` each, stays
/// within these limits. Errors: invalid_argument, with what to lower.
Result<void> check_answer_size(const Request& request, std::int64_t prompt_tokens,
                               std::int64_t max_tokens);

/// The bytes that a completion takes in a message, approximately (a few bytes off for each list).
std::size_t message_bytes(const Completion& completion);

}  // namespace troupe
