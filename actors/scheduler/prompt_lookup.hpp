#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

/// Guesses what follows `tokens` by prompt lookup (Saxena 2023; vLLM's "ngram"): of the longest
/// ending of at most `longest` and at least one token that occurred before, what followed it the
/// last time, at most `most` tokens. Empty if there is none.
std::vector<std::int32_t> look_up_continuation(std::span<const std::int32_t> tokens,
                                               std::int32_t longest, std::int32_t most);

}  // namespace troupe
