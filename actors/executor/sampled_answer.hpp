#pragma once

#include <vector>

#include "actors/executor/answer.hpp"
#include "actors/executor/choice_builder.hpp"
#include "actors/executor/prompt_scores.hpp"

namespace troupe {

/// n answers, each sampled on its own: the sequence at place i is choice i, all of one seed. Choice
/// i is the same for every n and best_of > i; choice 0 is what a request for one answer gets. With
/// best_of > n the n choices with the largest mean log-probability per token are given, likeliest
/// first.
class SampledAnswer : public Answer {
 public:
  SampledAnswer(PreparedRequest request, const Tokenizer* tokenizer);

  std::vector<SequenceSpec> begin() override;
  Step take(std::size_t place, SequenceUpdate update) override;
  SequenceSpec again(std::size_t place) override;
  Completion finish() override;

 private:
  SequenceSpec sequence(std::size_t place) const;

  std::uint64_t id_;
  SamplingParams sampling_;
  std::int32_t priority_;
  std::optional<std::int64_t> deadline_us_;
  AnswerForm form_;
  const Tokenizer* tokenizer_;
  PromptScores prompt_;
  std::vector<ChoiceBuilder> choices_;  ///< refer to form_
};

}  // namespace troupe
