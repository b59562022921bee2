#pragma once

#include <vector>

#include "actors/executor/answer.hpp"
#include "actors/executor/beam_search.hpp"
#include "actors/executor/prompt_scores.hpp"

namespace troupe {

/// The n best of a beam search. In every step each beam is a sequence of prompt and tokens so far
/// that generates one token and tells the likeliest; the prefix cache spares it the rest.
class BeamAnswer : public Answer {
 public:
  /// `request.form.beam` is set; max_tokens is at least 1.
  BeamAnswer(PreparedRequest request, const Tokenizer* tokenizer);

  std::vector<SequenceSpec> begin() override;
  Step take(std::size_t place, SequenceUpdate update) override;
  SequenceSpec again(std::size_t place) override;
  Completion finish() override;

 private:
  /// The beams of this step as sequences.
  std::vector<SequenceSpec> step();
  SequenceSpec sequence(std::size_t beam) const;
  Choice choice(Beam beam) const;

  std::uint64_t id_;
  std::uint64_t seed_;
  std::int32_t prompt_logprobs_;
  std::int32_t priority_;
  std::optional<std::int64_t> deadline_us_;
  AnswerForm form_;
  const Tokenizer* tokenizer_;
  PromptScores prompt_;
  BeamSearch search_;
  std::size_t first_place_ = 0;          ///< of this step's sequences
  std::size_t missing_ = 0;              ///< of these, not heard of yet
  std::vector<TokenLogprobs> proposed_;  ///< by beam
};

}  // namespace troupe
