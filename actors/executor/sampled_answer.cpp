#include "actors/executor/sampled_answer.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace troupe {

SampledAnswer::SampledAnswer(PreparedRequest request, const Tokenizer* tokenizer)
    : id_(request.id),
      sampling_(std::move(request.sampling)),
      priority_(request.priority),
      deadline_us_(request.deadline_us),
      form_(std::move(request.form)),
      tokenizer_(tokenizer),
      prompt_(std::move(request.prompt), sampling_.prompt_logprobs >= 0) {
  // Which of them are best is told by their scores.
  if (form_.best_of > form_.n) sampling_.logprobs = std::max(sampling_.logprobs, 0);
  choices_.assign(static_cast<std::size_t>(form_.best_of),
                  ChoiceBuilder(form_, sampling_.min_tokens, tokenizer_));
}

std::vector<SequenceSpec> SampledAnswer::begin() {
  std::vector<SequenceSpec> sequences;
  for (std::size_t place = 0; place < choices_.size(); ++place) {
    sequences.push_back(sequence(place));
  }
  return sequences;
}

SequenceSpec SampledAnswer::sequence(std::size_t place) const {
  SequenceSpec spec;
  spec.prompt = prompt_.prompt();
  spec.sampling = sampling_;
  spec.priority = priority_;
  spec.deadline_us = deadline_us_;
  spec.sampling.choice = static_cast<std::uint32_t>(place);
  if (place > 0) spec.sampling.prompt_logprobs = -1;  // the first one's serve all
  return spec;
}

Answer::Step SampledAnswer::take(std::size_t place, SequenceUpdate update) {
  prompt_.add(update);
  choices_[place].add(std::move(update));
  return {choices_[place].ended(), {}};
}

SequenceSpec SampledAnswer::again(std::size_t place) {
  choices_[place] = ChoiceBuilder(form_, sampling_.min_tokens, tokenizer_);
  return sequence(place);
}

Completion SampledAnswer::finish() {
  Completion completion;
  completion.id = id_;
  if (form_.best_of > form_.n) {
    std::ranges::stable_sort(choices_, std::ranges::greater(), &ChoiceBuilder::mean_logprob);
  }
  const auto given = static_cast<std::size_t>(form_.n);
  for (std::size_t i = 0; i < given; ++i) completion.choices.push_back(choices_[i].finish());
  prompt_.finish(tokenizer_, completion);
  return completion;
}

}  // namespace troupe
