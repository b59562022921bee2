#pragma once

#include <vector>

#include "actors/executor/answer.hpp"
#include "actors/executor/beam_search.hpp"
#include "actors/executor/prompt_scores.hpp"

namespace troupe {

/// The n best results of a beam search. In every step each beam is a sequence of prompt and tokens
/// so far that generates one token and reports the likeliest ones; the prefix cache saves
/// recomputing the rest.
class BeamAnswer : public Answer {
 public:
  /// `request.form.beam` is set; max_tokens is at least 1.
  BeamAnswer(PreparedRequest request, const Tokenizer* tokenizer);

  SequenceGroupSpec begin() override;
  Step take(SequenceUpdate update) override;
  Completion finish() override;

 private:
  Choice choice(Beam beam) const;

  std::uint64_t id_;
  std::uint64_t seed_;
  std::int32_t max_tokens_;
  std::int32_t prompt_logprobs_;
  std::int32_t priority_;
  std::optional<std::int64_t> deadline_us_;
  AnswerForm form_;
  const Tokenizer* tokenizer_;
  PromptScores prompt_;
  BeamSearch search_;
  std::int32_t first_ = 0;               ///< the first of this step's sequences
  std::size_t missing_ = 1;              ///< number of these that have not reported yet
  std::vector<TokenLogprobs> proposed_;  ///< by beam
};

}  // namespace troupe
