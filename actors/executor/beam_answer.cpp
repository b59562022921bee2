#include "actors/executor/beam_answer.hpp"

#include <span>
#include <utility>

#include "actors/executor/choice_builder.hpp"

namespace troupe {

BeamAnswer::BeamAnswer(PreparedRequest request, const Tokenizer* tokenizer)
    : id_(request.id),
      seed_(request.sampling.seed),
      max_tokens_(request.sampling.max_tokens),
      prompt_logprobs_(request.sampling.prompt_logprobs),
      priority_(request.priority),
      deadline_us_(request.deadline_us),
      form_(std::move(request.form)),
      tokenizer_(tokenizer),
      prompt_(std::move(request.prompt), prompt_logprobs_ >= 0),
      search_({.width = form_.beam->width,
               .length_penalty = form_.beam->length_penalty,
               .max_tokens = max_tokens_,
               .prompt_tokens = prompt_.prompt().size(),
               .eos_ids = form_.eos_ids,
               .logprobs = form_.logprobs}),
      proposed_(missing_) {}

SequenceGroupSpec BeamAnswer::begin() {
  SequenceGroupSpec spec;
  spec.request = id_;
  spec.prompt = prompt_.prompt();
  spec.beam_width = form_.beam->width;
  spec.priority = priority_;
  spec.deadline_us = deadline_us_;
  spec.sampling.temperature = 0.0F;  // the token that a beam samples is not used
  spec.sampling.seed = seed_;
  spec.sampling.max_tokens = max_tokens_;
  spec.sampling.ignore_eos = true;
  spec.sampling.logprobs = search_.proposals();
  spec.sampling.prompt_logprobs = prompt_logprobs_;
  return spec;
}

Answer::Step BeamAnswer::take(SequenceUpdate update) {
  prompt_.add(update);
  if (!update.end) return {};
  const auto beam = static_cast<std::size_t>(update.sequence - first_);
  if (!update.logprobs.empty()) proposed_[beam] = std::move(update.logprobs.front());
  Step step{.ended = true};
  if (--missing_ > 0) return step;
  first_ += static_cast<std::int32_t>(proposed_.size());
  search_.advance(proposed_);
  for (const Beam& next : search_.beams()) step.beams.push_back(next.tokens);
  missing_ = step.beams.size();
  proposed_.assign(missing_, {});
  step.done = step.beams.empty();
  return step;
}

Completion BeamAnswer::finish() {
  Completion completion;
  completion.id = id_;
  for (Beam& beam : search_.best(static_cast<std::size_t>(form_.n))) {
    completion.choices.push_back(choice(std::move(beam)));
  }
  prompt_.finish(form_, tokenizer_, completion);
  return completion;
}

Choice BeamAnswer::choice(Beam beam) const {
  Choice choice;
  choice.finish_reason = beam.ended ? FinishReason::stop : FinishReason::length;
  if (beam.ended) choice.stop_token = beam.tokens.back();
  if (tokenizer_ != nullptr) {
    std::span<const std::int32_t> shown(beam.tokens);
    if (beam.ended && !form_.include_stop_str_in_output) shown = shown.first(shown.size() - 1);
    choice.text = text_of(form_, shown);
    if (form_.logprobs >= 0) {
      choice.text_offsets = offsets_of(form_, shown, beam.tokens.size());
      append_bytes(*tokenizer_, beam.tokens, beam.logprobs, choice.logprob_bytes);
    }
  }
  choice.token_ids = std::move(beam.tokens);
  choice.logprobs = std::move(beam.logprobs);
  return choice;
}

}  // namespace troupe
