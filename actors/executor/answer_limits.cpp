#include "actors/executor/answer_limits.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

namespace troupe {
namespace {

std::int64_t scores_of_token(std::int32_t logprobs) {
  return logprobs < 0 ? 0 : 1 + std::int64_t{logprobs};
}

std::size_t bytes_of(std::span<const TokenLogprobs> scores) {
  std::size_t bytes = 0;
  for (const TokenLogprobs& token : scores) {
    bytes += sizeof(TokenLogprobs) + token.top_ids.size() * sizeof(std::int32_t) +
             token.top_logprobs.size() * sizeof(float);
  }
  return bytes;
}

std::size_t bytes_of(std::span<const std::string> texts) {
  std::size_t bytes = 0;
  for (const std::string& text : texts) bytes += sizeof(std::uint64_t) + text.size();
  return bytes;
}

}  // namespace

Result<void> check_answer_size(const Request& request, std::int64_t prompt_tokens,
                               std::int64_t max_tokens) {
  const std::int64_t generated = std::max(request.n, request.best_of) * max_tokens;
  if (generated > max_answer_tokens) {
    return fail(
        ErrorCode::invalid_argument,
        "{} choices of up to {} tokens are more than the {} that one answer may have: lower "
        "n, best_of or max_tokens",
        std::max(request.n, request.best_of), max_tokens, max_answer_tokens);
  }
  // Every choice of a completion includes the prompt's scores.
  const std::int64_t scores = generated * scores_of_token(request.logprobs) +
                              request.n * prompt_tokens * scores_of_token(request.prompt_logprobs);
  if (scores <= max_answer_scores) return {};
  return fail(ErrorCode::invalid_argument,
              "the answer could have {} log-probabilities, at most {} are given: lower n, "
              "max_tokens, logprobs or prompt_logprobs",
              scores, max_answer_scores);
}

std::size_t message_bytes(const Completion& completion) {
  std::size_t bytes =
      sizeof(Completion) + completion.error_code.size() + completion.error.size() +
      completion.prompt_text.size() + completion.prompt_ids.size() * sizeof(std::int32_t) +
      completion.prompt_text_offsets.size() * sizeof(std::int32_t) +
      bytes_of(completion.prompt_logprobs) + bytes_of(completion.prompt_logprob_bytes);
  for (const Choice& choice : completion.choices) {
    bytes += sizeof(Choice) + choice.text.size() + choice.stop_string.size() +
             choice.token_ids.size() * sizeof(std::int32_t) +
             choice.text_offsets.size() * sizeof(std::int32_t) + bytes_of(choice.logprobs) +
             bytes_of(choice.logprob_bytes);
  }
  return bytes;
}

}  // namespace troupe
