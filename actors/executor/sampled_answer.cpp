#include "actors/executor/sampled_answer.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace troupe {

SampledAnswer::SampledAnswer(PreparedRequest request, const Tokenizer* tokenizer)
    : id_(request.id),
      sampling_(std::move(request.sampling)),
      min_tokens_(sampling_.min_tokens),
      priority_(request.priority),
      deadline_us_(request.deadline_us),
      form_(std::move(request.form)),
      tokenizer_(tokenizer),
      prompt_(std::move(request.prompt), sampling_.prompt_logprobs >= 0) {
  // Scores are needed to find the best choices.
  if (form_.best_of > form_.n) sampling_.logprobs = std::max(sampling_.logprobs, 0);
}

SequenceGroupSpec SampledAnswer::begin() {
  SequenceGroupSpec spec;
  spec.request = id_;
  spec.prompt = prompt_.prompt();
  spec.sampling = std::move(sampling_);
  spec.choices = form_.best_of;
  spec.priority = priority_;
  spec.deadline_us = deadline_us_;
  return spec;
}

Answer::Step SampledAnswer::take(SequenceUpdate update) {
  prompt_.add(update);
  const auto number = static_cast<std::size_t>(update.sequence);
  // Choices begin in order, as the scheduler has room for them.
  while (choices_.size() <= number) choices_.emplace_back(form_, min_tokens_, tokenizer_);
  choices_[number].add(std::move(update));
  if (!choices_[number].ended()) return {};
  return {.ended = true, .done = ++ended_ == form_.best_of};
}

Completion SampledAnswer::finish() {
  Completion completion;
  completion.id = id_;
  if (form_.best_of > form_.n) {
    std::ranges::stable_sort(choices_, std::ranges::greater(), &ChoiceBuilder::mean_logprob);
  }
  const auto given = static_cast<std::size_t>(form_.n);
  for (std::size_t i = 0; i < given; ++i) completion.choices.push_back(choices_[i].finish());
  prompt_.finish(form_, tokenizer_, completion);
  return completion;
}

}  // namespace troupe
