#pragma once

#include <deque>

#include "actors/executor/answer.hpp"
#include "actors/executor/choice_builder.hpp"
#include "actors/executor/prompt_scores.hpp"

namespace troupe {

/// n answers, each sampled independently: sequence i is choice i, all with one seed. Choice i is
/// the same for every n and best_of > i; choice 0 is what a request for one answer gets. With
/// best_of > n the n choices with the largest mean log-probability per token are returned,
/// likeliest first.
class SampledAnswer : public Answer {
 public:
  SampledAnswer(PreparedRequest request, const Tokenizer* tokenizer);

  SequenceGroupSpec begin() override;
  Step take(SequenceUpdate update) override;
  Completion finish() override;

 private:
  std::uint64_t id_;
  SamplingParams sampling_;  ///< until begin()
  std::int32_t min_tokens_;
  std::int32_t priority_;
  std::optional<std::int64_t> deadline_us_;
  AnswerForm form_;
  const Tokenizer* tokenizer_;
  PromptScores prompt_;
  std::deque<ChoiceBuilder> choices_;  ///< choices with updates so far; refer to form_
  std::int32_t ended_ = 0;             ///< number of ended ones, of best_of
};

}  // namespace troupe
