#pragma once

#include <cstdint>
#include <vector>

#include "actors/api/request.hpp"
#include "actors/executor/prepared_request.hpp"
#include "actors/scheduler/scheduler.hpp"
#include "models/text/tokenizer.hpp"

namespace troupe {

/// A request's prompt and the scores of its tokens if requested.
class PromptScores {
 public:
  PromptScores(std::vector<std::int32_t> prompt, bool scored);

  const std::vector<std::int32_t>& prompt() const { return prompt_; }

  /// Takes the prompt's scores from an update.
  void add(SequenceUpdate& update);

  /// Moves everything into the Completion, with the text that `form` echoes; `tokenizer` may be
  /// null.
  void finish(AnswerForm& form, const Tokenizer* tokenizer, Completion& completion);

 private:
  std::vector<std::int32_t> prompt_;
  std::vector<TokenLogprobs> scores_;  ///< [prompt - 1], by position from 1, or empty
};

}  // namespace troupe
