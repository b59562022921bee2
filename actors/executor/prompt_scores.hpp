#pragma once

#include <cstdint>
#include <vector>

#include "actors/engine/request.hpp"
#include "actors/executor/prepared_request.hpp"
#include "actors/scheduler/scheduler.hpp"
#include "models/text/tokenizer.hpp"

namespace troupe {

/// A request's prompt, and the scores of its tokens if they are asked for.
class PromptScores {
 public:
  PromptScores(std::vector<std::int32_t> prompt, bool scored);

  const std::vector<std::int32_t>& prompt() const { return prompt_; }

  /// Takes the prompt's scores out of an update.
  void add(SequenceUpdate& update);

  /// Hands everything over to the Completion, with the text that `form` wants back; `tokenizer` may
  /// be null.
  void finish(AnswerForm& form, const Tokenizer* tokenizer, Completion& completion);

 private:
  std::vector<std::int32_t> prompt_;
  std::vector<TokenLogprobs> scores_;  ///< [prompt - 1], by position from 1, or empty
};

}  // namespace troupe
